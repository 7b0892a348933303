"""The first cause of what differs, and its sentence, from runs that are computed with NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from sketching import sketch

from distdemo.parity.compare import Comparing, RunNotes
from distdemo.parity.judge import first_difference
from distdemo.parity.notes import Clip, Mesh, Note, RankNotes, Unread
from distdemo.parity.records import Axis, TensorId
from distdemo.parity.remarks import remarks
from distdemo.parity.results import Results

ROWS = 8
RATE = 0.1
SIZE = 4


class Notes:
    """Notes of one rank."""

    def __init__(self):
        self.notes = []

    def add(self, kind, step, name, array, *, settings=None):
        array = np.asarray(array, dtype=np.float64)
        is_activation = kind in ("input", "output", "loss")
        dims = (array.ndim - 1,) if is_activation else tuple(range(array.ndim))
        own = sketch(
            array.reshape(1) if array.ndim == 0 else array, (0,) if array.ndim == 0 else dims
        )
        rows = array.size // array.shape[dims[0]] if array.shape else 1
        line = f"line of {name}"
        kept = (line, settings or {}, replace(own, rows=rows))
        self.notes.append(Note(kind, step, name, "float64", *kept))

    def finished(self, rank, **settings):
        return RankNotes(rank, 2, tuple(self.notes), **settings)


class Fault:
    """Data-parallel training of a linear layer; subclasses change a part of it."""

    settings: ClassVar[dict[str, Any]] = {"backward": "train.py:20", "stepped": "train.py:21"}

    def start(self, rank):
        return np.random.default_rng(1).normal(size=(3, 2))

    def data(self, step, rank, size):
        x = np.random.default_rng(10 + step).normal(size=(ROWS, 3))
        return x[rank::size]

    def hidden(self, y, rank, size):
        return y

    def loss(self, y):
        return (y**2).mean()

    def gradients(self, by_rank):
        return [sum(by_rank) / len(by_rank)] * len(by_rank)

    def clipped(self, gradients):
        return None

    def rate(self, rank):
        return RATE

    def rank_settings(self, rank, size):
        return self.settings


def train(fault, size, moved=0.0, of=None):
    """Return the notes of a training on ``size`` ranks, with the settings of another fault."""
    settings = (of or fault).rank_settings
    notes = [Notes() for _ in range(size)]
    weights = [fault.start(rank) if size > 1 else Fault().start(0) for rank in range(size)]
    for note, weight in zip(notes, weights, strict=True):
        note.add("start", 0, "weight", weight)
    weights = [weights[0] * (1 + moved) for _ in range(size)]
    for note, weight in zip(notes, weights, strict=True):
        note.add("initial", 0, "weight", weight)
    for step in range(2):
        gradients = []
        for rank, note in enumerate(notes):
            x = fault.data(step, rank, size)
            y = fault.hidden(x @ weights[rank], rank, size)
            note.add("input", step, "input", x)
            note.add("output", step, "layer", y)
            note.add("output", step, "model", y)
            note.add("loss", step, "loss", fault.loss(y))
            gradients.append(2 * x.T @ y / y.size)
        gradients = fault.gradients(gradients) if size > 1 else gradients
        clipped = (of or fault).clipped(gradients)
        for rank, note in enumerate(notes):
            lr = fault.rate(rank) if size > 1 else RATE
            note.add("gradient", step, "weight", gradients[rank], settings={"lr": lr})
            if clipped is not None:
                note.add("clipped", step, "weight", clipped[rank], settings={"lr": lr})
                gradients[rank] = clipped[rank]
            weights[rank] = weights[rank] - lr * gradients[rank]
            note.add("parameter", step, "weight", weights[rank])
    return RunNotes(
        [note.finished(rank, **settings(rank, size)) for rank, note in enumerate(notes)]
    )


def compared(fault):
    """Return the difference of a training from that of one rank, and the explanations."""
    reference = train(Fault(), 1, of=fault)
    comparing = Comparing(reference, train(Fault(), 1, moved=1e-15), train(fault, SIZE))
    results = Results(comparing)
    return first_difference(results), results


# --------------------------------------------------------------------------------------- faults


class Unreduced(Fault):
    def gradients(self, by_rank):
        return by_rank


class Summed(Fault):
    def gradients(self, by_rank):
        return [sum(by_rank)] * len(by_rank)


class SummedWithAdam(Summed):
    """Adam takes the same step with any multiple of the gradient."""

    settings: ClassVar[dict[str, Any]] = {**Fault.settings, "optimizers": ("AdamW",)}

    def rate(self, rank):
        return RATE / SIZE


class SummedAndMadeUpFor(SummedWithAdam):
    settings: ClassVar[dict[str, Any]] = {**Fault.settings, "optimizers": ("SGD",)}


class ZeroOnOne(Fault):
    def gradients(self, by_rank):
        mean = sum(by_rank) / len(by_rank)
        return [mean, mean, 0 * mean, mean]


class LocalOnOne(Fault):
    def gradients(self, by_rank):
        mean = sum(by_rank) / len(by_rank)
        return [mean, by_rank[1], mean, mean]


class Clipped(Fault):
    def clipped(self, gradients):
        factors = (0.5, 0.25, 0.5, 0.5) if len(gradients) > 1 else (1,)
        return [own * factor for own, factor in zip(gradients, factors, strict=True)]

    def rank_settings(self, rank, size):
        norm = (2.0, 4.0, 2.0, 2.0)[rank] if size > 1 else 1.0
        return {**self.settings, "clips": (Clip(0, norm, "train.py:30"), Clip(1, norm, ""))}


class Rates(Fault):
    def rate(self, rank):
        return RATE * (1 + rank)


class Frozen(Fault):
    def rate(self, rank):
        return 0.0


class Skipped(Fault):
    def rank_settings(self, rank, size):
        backwards = (1, 2) if rank == 1 else (1, 1)
        return {**self.settings, "backwards": backwards}

    def data(self, step, rank, size):
        rows = super().data(step, rank, size)
        return np.concatenate([rows, rows**2]) if (step, rank) == (1, 1) else rows


class SameRows(Fault):
    def data(self, step, rank, size):
        return super().data(step, 0, size)


class SameBatch(Fault):
    def data(self, step, rank, size):
        return super().data(step, 0, 1)


class Growing(Fault):
    def data(self, step, rank, size):
        return super().data(step + 100 * rank, 0, 1)


class OtherSamples(Fault):
    def data(self, step, rank, size):
        return super().data(step + 100 * rank, 0, size)


class Seeds(Fault):
    def start(self, rank):
        return np.random.default_rng(1 + rank // 2).normal(size=(3, 2))


class Wrong(Fault):
    def hidden(self, y, rank, size):
        return y + 0.1 * (size > 1)


class Random(Wrong):
    settings: ClassVar[dict[str, Any]] = {**Fault.settings, "random": ("layer",)}


class LocalNorm(Wrong):
    settings: ClassVar[dict[str, Any]] = {**Fault.settings, "local_norms": ("layer",)}


class LossOnly(Fault):
    def loss(self, y):
        return (y**2).mean() * (1 + 0.1 * y[0, 0] * (len(y) < ROWS))

    def gradients(self, by_rank):
        return [0.9 * by_rank[0] + by_rank[1] / 4] * len(by_rank)


@pytest.mark.parametrize(
    ("fault", "cause", "texts"),
    [
        (
            Unreduced,
            "gradient",
            [
                "the gradient of weight is not reduced.",
                "0-3 hold parts whose mean",
                "Before that, the input, 2 outputs and the loss agree.",
                "At train.py:20.",
            ],
        ),
        (Summed, "gradient", ["is 4 times the reference", "Divide by the number of ranks"]),
        (SummedWithAdam, "gradient", ["is 4 times the reference"]),
        (ZeroOnOne, "gradient", ["is zero on rank 2."]),
        (LocalOnOne, "gradient", ["is right on ranks 0, 2-3, and not on rank 1."]),
        (
            Clipped,
            "gradient",
            [
                "though it agrees before clip_grad_norm_",
                "0.25 on rank 1",
                "the norm 2 on ranks 0, 2-3 and 4",
            ],
        ),
        (Frozen, "parameter", ["has not changed on any rank", "Its lr is 0 on ranks 0-3"]),
        (Skipped, "parameter", ["Step 2: rank 1 skipped the optimizer's step"]),
        (
            Rates,
            "parameter",
            ["right after the step on rank 0, and not on ranks 1-3", "0.4 on rank 3"],
        ),
        (
            SameRows,
            "data",
            ["every rank gets the same input, and it isn't", "2 on each rank, 8 in"],
        ),
        (SameBatch, "data", ["all ranks get the same input, the reference's whole batch"]),
        (Growing, "data", ["4 times the reference's", "--batch-size 32"]),
        (OtherSamples, "data", ["together aren't the reference's"]),
        (Seeds, "seeds", ["different values of weight", "between ranks 0-1 and ranks 2-3"]),
        (Wrong, "forward", ["the output of layer is not the reference's"]),
        (Random, "random", ["layer can't be compared: it draws random numbers."]),
        (LocalNorm, "norm", ["layer can't be compared: it normalises"]),
        (LossOnly, "loss", ["the loss is neither the mean nor the sum"]),
    ],
)
def test_the_first_cause_is_named(fault, cause, texts):
    difference, _ = compared(fault())
    assert difference is not None
    said = "\n".join([difference.what, *difference.facts, difference.hint])
    assert difference.cause == cause, said
    for text in texts:
        assert text in said


@pytest.mark.parametrize("fault", [Fault, SummedAndMadeUpFor])
def test_a_right_training_has_no_difference(fault):
    difference, results = compared(fault())
    assert difference is None
    assert all(result.holds for result in results.values())


# ----------------------------------------------------------------------------- tensor parallelism


TP = Mesh((Axis("tp", 2),), (0, 1))


def split_layer(*, norm=None, output=None, splits_rows=False):
    """Return the notes of two ranks that split a layer, and those of one rank.

    Args:
        norm: Gradients of a replicated norm.
        output: Outputs of the second layer.
        splits_rows: True if each rank has other rows of the input.
    """
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6, 3))
    fc1 = rng.normal(size=(3, 4))
    fc2 = rng.normal(size=(4, 3))
    bias = rng.normal(size=3)
    hidden = x @ fc1
    whole = hidden @ fc2 + bias
    parts = [hidden[:, :2] @ fc2[:2], hidden[:, 2:] @ fc2[2:]]
    gradient = rng.normal(size=3)
    runs = []
    for size in (1, 2):
        ranks = []
        for rank in range(size):
            notes = Notes()
            piece = slice(2 * rank, 2 * rank + 2) if size > 1 else slice(None)
            for name, array in (
                ("fc1.weight", fc1[:, piece]),
                ("fc2.weight", fc2[piece]),
                ("fc2.bias", bias),
                ("norm.weight", np.ones(3)),
            ):
                notes.add("start", 0, name, array)
                notes.add("initial", 0, name, array)
            own = slice(rank, None, size) if splits_rows else slice(None)
            notes.add("input", 0, "input", x[own])
            notes.add("output", 0, "fc1", hidden[own, piece])
            y = whole if size == 1 or output is None else output(parts, bias, rank)
            notes.add("output", 0, "fc2", y)
            final = whole if np.allclose(y, whole) else y**2
            notes.add("output", 0, "model", whole**2 if size == 1 else final**2)
            notes.add("loss", 0, "loss", (whole**2).mean() if size == 1 else (final**2).mean())
            of_norm = gradient if size == 1 or norm is None else norm(gradient, rank)
            notes.add("gradient", 0, "norm.weight", of_norm)
            notes.add("parameter", 0, "norm.weight", np.ones(3) - of_norm)
            own_notes = notes.finished(rank, meshes=(TP,) if size > 1 else ())
            ranks.append(replace(own_notes, steps=1))
        runs.append(RunNotes(ranks))
    comparing = Comparing(runs[0], runs[0], runs[1])
    results = Results(comparing)
    return first_difference(results), results


def test_a_single_number_may_move_as_far_as_other_gradients():
    def run(size, weight, scale):
        notes = Notes()
        for name, gradient in (("weight", np.arange(1.0, 13) * weight), ("scale", scale)):
            notes.add("initial", 0, name, np.ones_like(gradient))
            notes.add("gradient", 0, name, gradient)
            notes.add("parameter", 0, name, np.ones_like(gradient) - gradient)
        return RunNotes([replace(notes.finished(rank), steps=1) for rank in range(size)])

    def explained(by):  # the scale of the run that measures it has not moved, by chance
        runs = run(1, 1, 0.5), run(1, 1 + 1e-9, 0.5), run(2, 1, 0.5 * (1 + by))
        return Results(Comparing(*runs))[TensorId("gradient", 0, "scale")].exact

    assert explained(by=1e-8)
    assert not explained(by=1e-6)


def test_a_reference_with_nan_is_named():
    class Overflow(Fault):
        def hidden(self, y, rank, size):
            return y * np.nan

    runs = [train(Overflow(), size) for size in (1, 4)]
    comparing = Comparing(runs[0], runs[0], runs[1])
    difference = first_difference(Results(comparing))
    assert difference is not None
    assert "the output of layer contains NaN or infinity" in difference.what


def test_a_split_layer_is_explained():
    difference, results = split_layer()
    assert difference is None
    assert results["initial", 0, "fc1.weight"].placement == ("S(1)",)
    assert results["initial", 0, "fc2.weight"].placement == ("S(0)",)
    assert results["output", 0, "fc1"].placement == ("S(1)",)


def test_a_partial_gradient_of_a_replicated_parameter():
    noise = np.array([0.3, -0.2, 0.1])
    difference, _ = split_layer(norm=lambda g, rank: g / 2 + (noise if rank else -noise))
    assert difference.what == "Step 1: the gradient of norm.weight is not reduced."
    assert difference.facts[0] == "Ranks 0-1 hold parts that add up to the reference."
    assert difference.axis == "tp"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (
            lambda parts, bias, rank: parts[rank] + bias * (rank == 0),
            "the output of fc2 is partial",
        ),
        (lambda parts, bias, rank: parts[rank] + bias, "is partial, and nothing reduces it."),
        (lambda parts, bias, rank: sum(parts) + 2 * bias, "has its bias 2 times"),
        (lambda parts, bias, rank: sum(parts) + bias + 1, "all ranks hold the same other values"),
    ],
)
def test_a_row_parallel_layer_that_is_wrong(output, text):
    difference, _ = split_layer(output=output, norm=lambda g, rank: 2 * g)
    assert difference.cause == "forward"
    assert text in difference.what


def test_ranks_that_split_a_layer_and_the_rows():
    wrong = lambda parts, bias, rank: sum(parts) + bias + 1  # noqa: E731 - as in the table above
    difference, _ = split_layer(output=wrong, splits_rows=True, norm=lambda g, rank: 2 * g)
    assert difference.cause == "data"
    assert difference.what == "Step 1: the ranks get different rows of the input."


# ---------------------------------------------------------------------------------------- remarks


def started(*weights, output=False, **settings):
    """Return the notes of ranks that only drew these values of one parameter."""
    ranks = []
    for rank, weight in enumerate(weights):
        notes = Notes()
        notes.add("start", 0, "weight", weight)
        if output:
            notes.add("output", 0, "head", np.ones((2, 2)))
        ranks.append(notes.finished(rank, **settings))
    return RunNotes(ranks)


def drawn(seed, rows, scale=1.0):
    return np.random.default_rng(seed).normal(scale=scale, size=(rows, 100))


WHOLE = drawn(0, 20)
HALVES = (drawn(1, 10), drawn(2, 10))


@pytest.mark.parametrize(
    ("reference", "ranks", "told"),
    [
        (started(WHOLE), started(*HALVES), []),
        (
            started(WHOLE),
            started(*HALVES, copied=("weight",)),
            ["Started with the reference's values of 1 parameter that the ranks had drawn"],
        ),
        (
            started(WHOLE),
            started(HALVES[0], HALVES[0]),
            ["Drawn alike by ranks that hold different pieces: weight."],
        ),
        (
            started(WHOLE),
            started(2 * HALVES[0], 2 * HALVES[1]),
            ["Drawn with a different scale from the reference: weight (2 times)"],
        ),
        (started(np.ones((20, 100))), started(*[np.ones((10, 100))] * 2), []),
        (
            started(WHOLE, output=True),
            started(*HALVES),
            ["Called only in the reference, so not compared: head."],
        ),
        (
            started(WHOLE),
            started(*HALVES, unread=(Unread("output", "mask", "nested tensors"),)),
            ["Not read: mask (nested tensors)."],
        ),
    ],
    ids=["nothing", "copied", "alike", "scale", "constant", "absent", "unread"],
)
def test_remarks(reference, ranks, told):
    found = [*remarks(Comparing(reference, reference, ranks), 2)]
    assert len(found) == len(told), found
    assert all(text.startswith(start) for text, start in zip(found, told, strict=True)), found


@pytest.mark.parametrize(
    ("done", "asked", "told"),
    [
        (2, 2, []),
        (2, 3, ["The program made only 2 steps."]),
        (0, 2, ["The program computes no gradients: only outputs are compared."]),
    ],
)
def test_remarks_on_the_number_of_steps(done, asked, told):
    notes = RunNotes([replace(notes, steps=done) for notes in train(Fault(), 1).ranks])
    assert [*remarks(Comparing(notes, notes, notes), asked)] == told
