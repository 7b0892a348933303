"""Find the first cause of what differs, and say it in sentences. Pure logic, no torch.

What comes first in the order of execution is the cause, and what follows is its consequence. A
tensor that no placement explains is a cause only if something that matters is wrong, too: the loss,
a gradient or a parameter. Without training, every output matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distdemo.parity.compare import OWN, Comparing, Key
from distdemo.parity.placements import (
    ROWS,
    Explanation,
    Mesh,
    Placement,
    Tolerance,
    combinations,
    scales,
)
from distdemo.parity.records import Difference
from distdemo.parity.sketches import Sketch
from distdemo.view.format import listing, plural, ranks_text

ADAPTIVE = ("Adam", "Lamb", "RMSprop", "Adagrad", "Rprop", "Lion", "Muon", "Adadelta", "SignSGD")
"""Parts of names of optimizers that hide a factor of the gradients."""
MANY = 4  # names that a sentence lists
NEAR = 1e-3  # relative difference of a factor from a number

HINTS = {
    "rows": "Give each rank its own rows: a DistributedSampler, or batch[rank::world_size].",
    "growth": "parity compares the same global batch: divide the batch size by the number of "
    "ranks, or give the reference more, such as --reference-args '--batch-size {rows}'.",
    "samples": "Draw or shuffle with the same seed on every rank, then let each take its part.",
    "group": "Split the batch by the position along the data axis, not by the rank: ranks that "
    "hold pieces of one layer read the same rows.",
    "seeds": "Call torch.manual_seed with the same number on every rank before the model is "
    "built, or broadcast the parameters as DDP does.",
    "start": "Draw the whole parameter on every rank with the same seed and keep a slice, or "
    "leave out --own-start.",
    "output": "Look for a missing collective, a wrong group, or a wrong slice in this module.",
    "partial output": "all_reduce the output of a layer whose weight is split along its input "
    "dimension, before it is used.",
    "bias": "Add the bias of a layer that is split along its input dimension once, after the "
    "all_reduce.",
    "random": "Switch off dropout and other random numbers for the comparison: they differ with "
    "the number of ranks.",
    "norm": "Use SyncBatchNorm, or a norm that doesn't look at other rows, such as LayerNorm; or "
    "call .eval() on it for the comparison.",
    "loss": "Ranks with different numbers of tokens need a weight each: divide the sum of the "
    "loss by the number of all ranks' tokens, not each mean by the number of ranks.",
    "order": "All ranks have the same loss, and sums over the rows agree: rows may be in a "
    "different order from their labels, such as after a gather along the wrong dimension.",
    "partial": "Reduce the gradients of parameters that are replicated{over}, or make them part "
    "of the sharded graph.",
    "mean": "Average the gradients before the step: wrap the model in DDP, or all_reduce each "
    "gradient and divide it by the number of ranks.",
    "contribution": "A part of this gradient is not reduced{over}: wherever a split layer uses a "
    "replicated tensor, the gradients must be added up in the backward pass.",
    "sum": "Divide by the number of ranks after a sum: ReduceOp.AVG, or grad /= world_size.",
    "divided": "It is divided once too often: by the global batch and then by DDP, or by the "
    "accumulation steps of all ranks.",
    "factor": "Look for a scale that is applied twice or not at all, in the loss if all gradients "
    "have it: accumulation steps, loss scale, the number of ranks.",
    "zero": "Check that the loss depends on it on every rank: a collective without autograd "
    "passes no gradient on.",
    "clipped": "Clip by the norm of the whole model, on every rank: add up the squares of shards "
    "over the ranks, and reduce the gradients of replicas first.",
    "gradient": "Check which ranks take part in the reduction of this gradient, and that it "
    "happens after the last micro-batch.",
    "rates": "Use the same learning rate on every rank.",
    "parameter": "Check what happens between the reduction and the step: a step that some ranks "
    "skip, an update that isn't sent, an update outside the optimizer.",
}
"""Usual reason for each kind of difference, and what to do."""


@dataclass(frozen=True, slots=True)
class Case:
    """A tensor, and its nearest explanation.

    Attributes:
        key: Tensor.
        result: Nearest explanation.
        parts: Sketch of each rank.
        reference: The reference's.
        tolerance: How far they may differ.
    """

    key: Key
    result: Explanation
    parts: Sequence[Sketch | None]
    reference: Sketch
    tolerance: Tolerance

    @property
    def label(self) -> str:
        """Tensor as the subject of a sentence."""
        kind, _, name = self.key
        texts = {"loss": "the loss", "parameter": name, "initial": f"the initial {name}"}
        return texts.get(kind, f"the {kind} of {name}")

    def equal_ranks(self) -> list[list[int]]:
        """Return the ranks in groups that hold the same values, the largest group first."""
        groups: list[tuple[Sketch, list[int]]] = []
        for rank, part in enumerate(self.parts):
            if part is not None:
                same = (own for first, own in groups if self.tolerance.deviation(part, first) <= 1)
                own = next(same, None)
                if own is None:
                    groups.append((part, own := []))
                own.append(rank)
        return sorted((own for _, own in groups), key=len, reverse=True)

    def right_ranks(self) -> tuple[list[int], list[int]]:
        """Return the ranks that hold the reference, and if there are any, the remaining ones."""
        right = [
            rank
            for rank, part in enumerate(self.parts)
            if part is not None and self.tolerance.deviation(part, self.reference) <= 1
        ]
        return right, [rank for rank in range(len(self.parts)) if right and rank not in right]


class Judge:
    """Judge of a comparison.

    Args:
        comparing: The runs.
        mesh: Mesh that explains the most tensors.
        results: Explanation of each tensor, in the order of causes.
    """

    def __init__(
        self, comparing: Comparing, mesh: Mesh, results: Mapping[Key, Explanation]
    ) -> None:
        self._comparing = comparing
        self._mesh = mesh
        self._results = results
        self._notes = comparing.ranks.notes
        self._size = len(self._notes)
        self._data = {group for own in self._notes for group in own.data_groups}
        self._wrong = {
            key[2] for key, result in results.items() if key[0] == "parameter" and is_off(result)
        }

    def difference(self) -> Difference | None:
        """Return the first cause, or None if the program computes what the reference does."""
        causes = [key for key in self._results if self._is_cause(key)]
        found = self._seeds()
        if found is None and any(self._matters(key) for key in causes):
            found = self._say(self._case(causes[0]))
        return found or self._same_batch()

    # ------------------------------------------------------------------------------ what matters

    def _is_cause(self, key: Key) -> bool:
        """Return True if a tensor is not as it should be, and nothing later makes up for it."""
        kind, step, name = key
        is_wrong = is_off(self._results[key])
        if kind == "gradient":
            hidden = is_wrong and self._is_hidden(key)
            return hidden or (name in self._wrong and (is_wrong or bool(self._partial(key))))
        if not is_wrong or kind == "start":
            return False
        if kind in ("input", "output"):
            keys = [own for own in self._results if own[1] == step]
            later = [own for own in keys[keys.index(key) + 1 :] if own[0] in ("output", "loss")]
            has_loss = ("loss", step, "loss") in later
            return not has_loss or any(is_off(self._results[own]) for own in later)
        return True

    def _matters(self, key: Key) -> bool:
        """Return True if a cause changes what the program learns."""
        return key[0] in ("gradient", "parameter") or not self._comparing.has_training

    def _is_hidden(self, key: Key) -> bool:
        """Return True if an adaptive optimizer hides that a gradient is wrong.

        A gradient that differs between the ranks may be made up for, as ZeRO does.
        """
        optimizers = " ".join(self._notes[0].optimizers)
        is_scaled = self._results[key].holds and not self._partial(key)
        is_same = is_scaled or len(self._case(key).equal_ranks()) == 1
        return is_same and any(name in optimizers for name in ADAPTIVE)

    def _partial(self, key: Key) -> list[int]:
        """Return the axes along which a tensor is partial."""
        return [axis for axis, way in enumerate(self._results[key].placement) if way == "P"]

    def _case(self, key: Key) -> Case:
        comparing = self._comparing
        reference = comparing.references(key)[0]
        parts = comparing.parts(key)
        return Case(key, self._results[key], parts, reference, comparing.tolerance(key))

    # ------------------------------------------------------------------------------- the verdict

    def _say(self, case: Case) -> Difference:
        ways: dict[str, Callable[[Case], Difference]] = {
            "input": self._say_input,
            "output": self._say_output,
            "loss": self._say_loss,
            "gradient": self._say_gradient,
            "parameter": self._say_parameter,
        }
        return ways.get(case.key[0], self._say_initial)(case)

    def _made(
        self, key: Key, cause: str, what: str, hint: str, facts: Sequence[str] = (), **more: Any
    ) -> Difference:
        """Return a difference, with its line and what agrees before it."""
        kind, step, name = key
        notes = self._notes[0]
        lines = {"gradient": notes.backward, "loss": notes.backward, "parameter": notes.stepped}
        called = self._comparing.ranks.note(("output", step, "model") if kind == "input" else key)
        line = lines.get(kind, called.line if called else "")
        facts = (*facts, *([f"At {line}."] if line else []), *self._agreed(key))
        what = f"Step {max(step, 0)}: {what}"
        if len(self._mesh.axes) == 1:
            more["axis"] = self._mesh.axes[0].name
        return Difference(cause, what, facts, hint, kind, name, step, line=line, **more)

    def _agreed(self, until: Key) -> Iterator[str]:
        """Yield the sentence on the tensors before one."""
        keys = list(self._results)
        before = keys[: keys.index(until)]
        counts = Counter(
            key[0] for key in before if key[0] not in OWN and not is_off(self._results[key])
        )
        texts = [
            f"the {kind}" if count == 1 else f"{count:,} {kind}{'e' * (kind == 'loss')}s"
            for kind, count in counts.items()
        ]
        if texts:
            yield f"Before that, {listing(texts)} agree{'s' * (counts.total() == 1)}."

    # --------------------------------------------------------------------------- start and data

    def _seeds(self) -> Difference | None:
        """Return the difference for replicas that were drawn with different seeds."""
        cases = [self._case(key) for key in self._results if key[0] == "start"]
        different = [
            case
            for case in cases
            if len(case.equal_ranks()) > 1
            and all(part.lengths == case.reference.lengths for part in case.parts if part)
        ]
        if not different:
            return None
        first, *others = different[0].equal_ranks()
        names = _listed([case.key[2] for case in different])
        groups = listing([_ranks(group) for group in (first, *others)[:MANY]])
        return Difference(
            "seeds",
            f"The ranks start with different values of {names}.",
            (f"They differ between {groups}.",),
            HINTS["seeds"],
            "start",
            different[0].key[2],
            ranks=tuple(sorted(rank for group in others for rank in group)),
        )

    def _say_initial(self, case: Case) -> Difference:
        what = f"{case.label} is not the reference's."
        return self._made(case.key, "start", what, HINTS["start"])

    def _say_input(self, case: Case) -> Difference:
        notes = [table.get(case.key) for table in self._comparing.ranks.tables]
        rows = [note[0].rows if note else 0 for note in notes]
        own = self._comparing.reference.note(case.key)
        expected = own.rows if own else 0
        groups = case.equal_ranks()
        together = sum(rows[group[0]] for group in groups)
        is_same = len(set(rows)) == 1
        each = f"{rows[0]:,} on each rank" if is_same else _by_rank(dict(enumerate(rows)))
        facts = [f"Rows of the input: {each}, {expected:,} in the reference."]
        hint = HINTS["samples"]
        what = "the ranks' inputs together aren't the reference's."
        if len(groups) == 1:
            hint = HINTS["rows"]
            what = "every rank gets the same input, and it isn't the reference's."
        elif together > expected:
            hint = HINTS["growth"].format(rows=together)
            times = _times(together / expected)
            what = (
                f"the global batch is {times} the reference's: it grows with the number of ranks."
            )
        return self._made(case.key, "data", what, hint, facts)

    def _same_batch(self) -> Difference | None:
        """Return the difference for ranks that all do the same work along an axis of data."""
        key = next((key for key in self._results if key[0] == "input"), None)
        if key is None or not self._comparing.has_training:
            return None
        used = [own for own in self._results if own[0] != "start"]
        for index, axis in enumerate(self._mesh.axes):
            lines = self._mesh.lines(index)
            is_data = any(tuple(sorted(line)) in self._data for line in lines)
            is_idle = all(self._is_way(own, index, "R") for own in used)
            if self._is_way(key, index, "R") and (is_data or is_idle):
                who = f"the ranks{self._over(index, 'along')}" if self._over(index) else "all ranks"
                what = f"{who} get the same input, the reference's whole batch."
                facts = [f"{_ranks(lines[0]).capitalize()} compute the same."]
                return self._made(key, "data", what, HINTS["rows"], facts, axis=axis.name)
        return None

    def _other_rows(self, step: int) -> Difference | None:
        """Return the difference for ranks that split a layer, but not its input."""
        key = ("input", step, "input")
        for index, axis in enumerate(self._mesh.axes):
            line = self._mesh.lines(index)[0]
            is_split = any(
                own[0] == "initial" and not self._is_way(own, index, "R") for own in self._results
            )
            is_data = tuple(sorted(line)) in self._data
            if is_split and not is_data and self._is_way(key, index, ROWS):
                what = f"the ranks along {axis.name} get different rows of the input."
                facts = [f"{_ranks(line).capitalize()} hold pieces of layers that need the same."]
                more = {"axis": axis.name, "ranks": line}
                return self._made(key, "data", what, HINTS["group"], facts, **more)
        return None

    def _is_way(self, key: Key, index: int, way: str) -> bool:
        """Return True if a tensor has this placement along an axis."""
        result = self._results.get(key)
        return result is not None and result.placement[index : index + 1] == (way,)

    # ------------------------------------------------------------------------ forward and loss

    def _say_output(self, case: Case) -> Difference:
        found = self._not_comparable(case.key) or self._other_rows(case.key[1])
        if found is not None:
            return found
        before = self._partial_output(case.key)
        if before is not None:
            own, index = before
            what = f"and nothing reduces it before {case.key[2]}."
            return self._say_partial_output(own, index, what)
        placement, times = self._biases(case)
        if "P" in placement:
            more = ", apart from the bias that each adds"
            return self._say_partial_output(
                case.key, placement.index("P"), "and nothing reduces it.", more
            )
        hint = HINTS["bias" if times else "output"]
        what = f"{case.label} is not the reference's: {self._nearest(case)}."
        if times:
            what = f"{case.label} has its bias {times} times: each rank adds it before the sum."
        _, wrong = case.right_ranks()
        return self._made(case.key, "forward", what, hint, ranks=tuple(wrong))

    def _say_partial_output(self, key: Key, index: int, end: str, more: str = "") -> Difference:
        what = f"the output of {key[2]} is partial{self._over(index)}, {end}"
        facts = [self._lines_text(index, f"hold parts that add up to the reference{more}")]
        axis = self._mesh.axes[index].name
        return self._made(key, "forward", what, HINTS["partial output"], facts, axis=axis)

    def _partial_output(self, until: Key) -> tuple[Key, int] | None:
        """Return the last output before this one that nothing has reduced, and its axis.

        Masked rows of an embedding, too, are parts that must be added.
        """
        step = until[1]
        partial: tuple[Key, int] | None = None
        for key, result in self._results.items():
            if key == until:
                break
            for index, way in enumerate(result.placement if key[:2] == ("output", step) else ()):
                is_masked = (
                    way == ROWS
                    and self._is_way(("initial", 0, f"{key[2]}.weight"), index, "S(0)")
                    and self._is_way(("input", step, "input"), index, "R")
                )
                if way == "P" or is_masked:
                    partial = key, index
                elif way == "R" and partial is not None and partial[1] == index:
                    partial = None
        return partial

    def _biases(self, case: Case) -> tuple[Placement, int]:
        """Return the placement in which only a bias is too much, and how often it is added."""
        tables = self._comparing.reference.tables[0]
        own = tables.get(("initial", 0, f"{case.key[2]}.bias"))
        if own is None:
            return (), 0
        bias = own[1].columns[0][0] * tables[case.key][0].rows
        parts = self._mesh.parts(case.parts)
        for placement, whole in combinations(parts, case.tolerance, {"mean", ROWS}):
            if whole.lengths == case.reference.lengths == (len(bias),) and bias.any():
                extra = whole.columns[0][0] - case.reference.columns[0][0]
                times = round(float(extra @ bias) / float(bias @ bias))
                left = np.linalg.norm(extra - times * bias)
                if times > 0 and left < NEAR * np.linalg.norm(bias):
                    return placement, times + 1
        return (), 0

    def _not_comparable(self, key: Key) -> Difference | None:
        """Return the difference for a module that can't agree on another number of ranks."""
        parts = key[2].split(".")
        around = {"model", *(".".join(parts[:count]) for count in range(1, len(parts)))}
        called = [own for own in self._results if own[:2] == ("output", key[1])]
        before = called[: called.index(key) + 1] if key in called else called
        random = {name for own in self._notes for name in own.random}
        norms = {name for own in self._notes for name in own.local_norms}
        for own in called:
            if own in before or own[2] in around:
                if own[2] in random:
                    what = f"{own[2]} can't be compared: it draws random numbers."
                    return self._made(own, "random", what, HINTS["random"])
                if own[2] in norms:
                    what = f"{own[2]} can't be compared: it normalises over the rows of one rank."
                    return self._made(own, "norm", what, HINTS["norm"])
        return None

    def _say_loss(self, case: Case) -> Difference:
        values = [float(part.columns[0][0, 0]) for part in case.parts if part is not None]
        expected = float(case.reference.columns[0][0, 0])
        mean = sum(values) / len(values)
        facts = [
            f"The ranks' mean is {mean:.6g}, the reference's loss {expected:.6g}.",
            f"The ranks have {listing([f'{value:.6g}' for value in values[:8]])}.",
        ]
        hint = HINTS["order" if len(case.equal_ranks()) == 1 else "loss"]
        what = "the loss is neither the mean nor the sum of the ranks', though all outputs agree."
        if case.result.factor != 1:
            hint = HINTS["factor"]
            what = f"the loss is {_times(case.result.factor)} the reference."
        return self._made(case.key, "loss", what, hint, facts, factor=case.result.factor)

    # --------------------------------------------------------------------------- the gradients

    def _say_gradient(self, case: Case) -> Difference:
        if case.result.holds:
            return self._say_partial(case) if self._partial(case.key) else self._say_factor(case)
        clips = self._clips_text(case.key[1])
        hint = HINTS["clipped" if clips else "gradient"]
        more: dict[str, Any] = {}
        zeros = [
            rank
            for rank, part in enumerate(case.parts)
            if part is not None and part.norm == 0 < case.reference.norm and all(part.lengths)
        ]
        right, wrong = case.right_ranks()
        by_rank = self._scales(case)
        unlike = self._unlike_axis(case)
        if zeros:
            who = "every rank" if len(zeros) == self._size else _ranks(zeros)
            what = f"{case.label} is zero on {who}."
            hint = HINTS["zero"]
            more = {"ranks": tuple(zeros)}
        elif right:
            what = f"{case.label} is right on {_ranks(right)}, and not on {_ranks(wrong)}."
            more = {"ranks": tuple(wrong)}
        elif by_rank:
            what = f"{case.label} is scaled by a different factor on each rank."
            clips = [f"In multiples of the reference: {_by_rank(by_rank)}.", *clips]
            hint = HINTS["clipped"]
        elif unlike is not None and not clips:
            along = self._over(unlike, "along")
            what = f"{case.label} differs between the ranks{along}, which hold the same parameter."
            hint = HINTS["contribution"].format(over=self._over(unlike))
            more = {"axis": self._mesh.axes[unlike].name}
        else:
            what = f"{case.label} is not the reference's: {self._nearest(case)}."
            held = [rank for rank, part in enumerate(case.parts) if part is not None]
            more = {"ranks": tuple(held) if len(held) < self._size else ()}
        return self._made(case.key, "gradient", what, hint, clips, **more)

    def _say_partial(self, case: Case) -> Difference:
        """Return the difference for a gradient whose parts must still be added."""
        index = self._partial(case.key)[0]
        axis = self._mesh.axes[index]
        factor = case.result.factor
        is_mean = abs(factor - axis.size) < NEAR * axis.size
        does = "hold parts that add up to the reference"
        if is_mean:
            does = "hold parts whose mean is the reference"
        elif factor != 1:
            does += f" times {_number(factor)}"
        facts = [
            self._lines_text(index, does),
            *self._others(case.key, lambda own: own.holds and own.placement[index] == "P"),
        ]
        over = self._over(index)
        what = f"{case.label} is not reduced{over}."
        hint = HINTS["mean" if is_mean else "partial"].format(over=over)
        return self._made(case.key, "gradient", what, hint, facts, axis=axis.name)

    def _say_factor(self, case: Case) -> Difference:
        factor = case.result.factor
        clips = self._clips_text(case.key[1])
        facts = [
            *self._others(case.key, lambda own: abs(own.factor - factor) < NEAR * abs(factor)),
            *clips,
        ]
        sizes = [self._size, *(axis.size for axis in self._mesh.axes)]
        hint = "clipped" if clips else "factor"
        if any(abs(factor - size) < NEAR * size for size in sizes):
            hint = "sum"
        elif any(abs(factor * size - 1) < NEAR for size in sizes):
            hint = "divided"
        what = f"{case.label} is {_times(factor)} the reference."
        return self._made(case.key, "gradient", what, HINTS[hint], facts, factor=factor)

    def _others(self, key: Key, is_alike: Callable[[Explanation], bool]) -> Iterator[str]:
        """Yield the sentence on the other gradients of the step that are alike."""
        gradients = {own: r for own, r in self._results.items() if own[:2] == key[:2]}
        alike = [own[2] for own, result in gradients.items() if own != key and is_alike(result)]
        if len(alike) + 1 == len(gradients) > 1:
            yield f"The same goes for all {len(gradients):,} parameters."
        elif alike:
            yield f"The same goes for {_listed(alike)}."

    def _unlike_axis(self, case: Case) -> int | None:
        """Return an axis whose ranks hold the same parameter, but not the same gradient."""
        groups = case.equal_ranks()
        for index in range(len(self._mesh.axes)):
            is_same = all(
                any({*line} <= {*group} for group in groups) for line in self._mesh.lines(index)
            )
            if self._is_way(("initial", 0, case.key[2]), index, "R") and not is_same:
                return index
        return None

    def _scales(self, case: Case) -> dict[int, float]:
        """Return each rank's factor, if all hold multiples of the reference or of their piece."""
        by_rank: dict[int, float] = {}
        for rank, part in enumerate(case.parts):
            if part is None or not all(part.lengths):
                continue
            piece = self._piece(case, rank, part)
            own = part.slice(piece.dims[0], 0, part.lengths[0]) if piece else part
            factors = scales(piece, [own], case.tolerance, simple=False) if piece else {}
            if not factors:
                return {}
            by_rank[rank] = factors[0]
        return by_rank

    def _piece(self, case: Case, rank: int, part: Sketch) -> Sketch | None:
        """Return the columns of the reference that a rank holds."""
        if part.lengths == case.reference.lengths:
            return case.reference.slice(part.dims[0], 0, part.lengths[0])
        own = self._results.get(("initial", 0, case.key[2]))
        splits = [axis for axis, way in enumerate(own.placement if own else ()) if way != "R"]
        if len(splits) != 1 or not self._is_way(("initial", 0, case.key[2]), splits[0], "S(0)"):
            return None
        line = next(line for line in self._mesh.lines(splits[0]) if rank in line)
        before = [case.parts[other] for other in line[: line.index(rank)]]
        start = sum(other.lengths[0] for other in before if other is not None)
        return case.reference.slice(0, start, part.lengths[0])

    def _clips_text(self, step: int) -> list[str]:
        """Return the sentence on ``clip_grad_norm_``, if ranks computed other norms."""
        runs = (self._comparing.reference.notes[:1], self._notes)
        reference, ranks = (
            {own.rank: clip for own in notes for clip in own.clips if clip.step == step}
            for notes in runs
        )
        if not reference or not ranks:
            return []
        if len(ranks) < self._size:
            return [f"Only {_ranks(list(ranks))} called clip_grad_norm_."]
        expected = reference[0].norm
        if all(abs(clip.norm - expected) <= NEAR * expected for clip in ranks.values()):
            return []
        norms = _by_rank({rank: clip.norm for rank, clip in ranks.items()})
        how = f"clip_grad_norm_ at {ranks[0].line} computed the norm {norms}"
        return [f"{how}; the reference's is {expected:.4g}."]

    # ------------------------------------------------------------------------------ parameters

    def _say_parameter(self, case: Case) -> Difference:
        step = case.key[1]
        rates = {own.rank: own.rates[step] for own in self._notes if step < len(own.rates)}
        clips = self._clips_text(step)
        hint = HINTS["clipped" if clips else "parameter"]
        if len(set(rates.values())) > 1:
            clips = [f"Learning rates: {_by_rank(rates)}.", *clips]
            hint = HINTS["rates"]
        right, wrong = case.right_ranks()
        if right:
            what = f"right after the step on {_ranks(right)}, and not on {_ranks(wrong)}."
        else:
            what = "not the reference's after the step, though its gradient agrees."
        what = f"{case.label} is {what}"
        return self._made(case.key, "parameter", what, hint, clips, ranks=tuple(wrong))

    # ------------------------------------------------------------------------------- sentences

    def _over(self, index: int, word: str = "over") -> str:
        """Return `` over tp``; empty if there is only one axis."""
        return f" {word} {self._mesh.axes[index].name}" if len(self._mesh.axes) > 1 else ""

    def _lines_text(self, index: int, does: str) -> str:
        """Return a sentence on each line of an axis: ``Ranks 0-1 hold x; so do ranks 2-3.``."""
        first, *others = [_ranks(line) for line in self._mesh.lines(index)]
        rest = [f"; so do {line}" for line in others[: MANY - 1]]
        return f"{first.capitalize()} {does}{''.join(rest)}{', ...' * (len(others) >= MANY)}."

    def _nearest(self, case: Case) -> str:
        """Return what the ranks hold instead of the reference."""
        factor = case.result.factor
        if factor != 1:
            return f"it is {_times(factor)} the reference, as {' · '.join(case.result.placement)}"
        groups = case.equal_ranks()
        if len(groups) > 1:
            return "no placement of the ranks' tensors explains it"
        if len(groups[0]) == self._size:
            return "all ranks hold the same other values"
        return f"{_ranks(groups[0])} hold{'s' * (len(groups[0]) == 1)} other values"


def is_off(result: Explanation) -> bool:
    """Return True if no placement explains a tensor exactly."""
    return not result.holds or result.factor != 1


def _ranks(ranks: Sequence[int]) -> str:
    """Return ``rank 2`` or ``ranks 0-1, 3``."""
    return f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"


def _by_rank(values: Mapping[int, float]) -> str:
    """Return ``0.5 on rank 0 and 2 on ranks 1-3``."""
    ranks: dict[str, list[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(f"{value:.4g}", []).append(rank)
    return listing([f"{value} on {_ranks(own)}" for value, own in ranks.items()][:8])


def _number(factor: float) -> str:
    """Return a factor as a whole number, as one over a whole number, or with three digits."""
    for value, text in ((factor, "{}"), (1 / factor, "1/{}")):
        if round(value) and math.isclose(value, round(value), rel_tol=NEAR):
            return text.format(round(value))
    return f"{factor:.3g}"


def _times(factor: float) -> str:
    """Return ``4 times`` or ``1/4 of``."""
    text = _number(factor)
    return f"{text} of" if text.startswith("1/") else f"{text} times"


def _listed(names: Sequence[str]) -> str:
    """Return names as a list; of many the first ones and a count."""
    if len(names) <= MANY:
        return listing(list(names))
    return f"{', '.join(names[:3])} and {plural(len(names) - 3, 'other parameter')}"
