"""Find the first cause of what differs, and say it in sentences. Pure logic, no torch.

What comes first in the order of execution is the cause, and what follows is its consequence. A
tensor that no placement explains is a cause only if something that matters is wrong, too: the loss,
a gradient or a parameter. Without training, every output matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from distdemo.parity.records import Clip, Difference
from distdemo.parity.sketches import Sketch
from distdemo.view.format import listing, plural, ranks_text

ADAPTIVE = ("Adam", "Lamb", "RMSprop", "Adagrad", "Rprop", "Lion", "Muon", "Adadelta", "SignSGD")
"""Parts of names of optimizers that hide a factor of the gradients."""
MANY = 4  # names that a sentence lists

HINTS = {
    "all equal": "Give each rank its own rows: a DistributedSampler, or batch[rank::world_size].",
    "same batch": "Give each rank its own rows: a DistributedSampler, or "
    "batch[rank::world_size]. Now N ranks do the work of one.",
    "growth": "parity compares the same global batch: divide the batch size by the number of "
    "ranks, or give the reference the larger one, such as --reference-args '--batch-size "
    "{rows}'.",
    "other samples": "Draw or shuffle with the same seed on every rank, then let each rank take "
    "its part.",
    "seeds": "Call torch.manual_seed with the same number on every rank before the model is "
    "built, or broadcast the parameters as DDP does.",
    "start": "Draw the whole parameter on every rank with the same seed and keep a slice, or "
    "leave out --own-start.",
    "partial output": "Reduce it before it is used: all_reduce the output of a layer whose "
    "weight is split along its input dimension.",
    "forward": "Compare this module's code with what one rank computes: a missing collective, a "
    "wrong group, or a wrong slice.",
    "bias": "Add the bias of a layer that is split along its input dimension once, after the "
    "all_reduce.",
    "rows": "Split the batch by the position along the data axis, not by the rank: ranks that hold "
    "pieces of one layer read the same rows.",
    "order": "All ranks have the same loss, and sums over the rows agree: rows may be in a "
    "different order from their labels, such as after a gather along the wrong dimension; or the "
    "labels differ.",
    "random": "Set the probability of dropout to 0 and switch off other random numbers for the "
    "comparison: other numbers of ranks draw other ones.",
    "norm": "Use SyncBatchNorm, or a norm that doesn't look at other rows, such as LayerNorm or "
    "GroupNorm; or call .eval() on it for the comparison.",
    "loss": "Ranks with different numbers of tokens need a weight each: divide the sum of the "
    "loss by the number of all ranks' tokens, not each mean by the number of ranks.",
    "partial": "Reduce the gradients of parameters that are replicated{over}, or make them part "
    "of the sharded graph.",
    "contribution": "A part of this gradient is not reduced{over}: wherever a split layer uses a "
    "replicated tensor, the gradients must be added up in the backward pass.",
    "unreduced": "Average the gradients before the step: wrap the model in DDP, or all_reduce "
    "each gradient and divide it by the number of ranks.",
    "times ranks": "Divide by the number of ranks after a sum: ReduceOp.AVG, or grad /= "
    "world_size.",
    "one per": "It was divided twice, or averaged where a sum is due.",
    "factor": "Look for a scale that is applied twice or not at all: accumulation steps, loss "
    "scale, number of ranks.",
    "zero": "Check that the loss depends on it on every rank, and that nothing detaches it: a "
    "collective without autograd returns no gradient.",
    "clipped": "Clip by the norm of the whole model: with sharded parameters, add up the squares "
    "over the ranks before the square root; with replicas, reduce the gradients first.",
    "rates": "Use the same learning rate on every rank.",
    "gradient": "Check which ranks take part in the reduction of this gradient, and that it "
    "happens after the last micro-batch.",
    "parameter": "Check what happens between the reduction and the step: clipping by a local "
    "norm, a learning rate per rank, a step that some ranks skip, an update outside the "
    "optimizer.",
}
"""Usual reason for each kind of difference, and what to do."""


@dataclass(frozen=True, slots=True)
class Case:
    """An unexplained tensor.

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
        if kind in ("input", "loss"):
            return f"the {kind}"
        if kind in ("start", "initial"):
            return f"the initial {name}"
        return name if kind == "parameter" else f"the {kind} of {name}"

    @property
    def title(self) -> str:
        """Step and tensor, as the beginning of a sentence."""
        return f"Step {max(self.key[1], 0)}: {self.label}"

    def equal_ranks(self) -> list[list[int]]:
        """Return the ranks in groups that hold the same values, the largest group first."""
        groups: list[list[int]] = []
        for rank, part in enumerate(self.parts):
            if part is None:
                continue
            for group in groups:
                first = self.parts[group[0]]
                if first is not None and self.tolerance.deviation(part, first) <= 1:
                    group.append(rank)
                    break
            else:
                groups.append([rank])
        return sorted(groups, key=len, reverse=True)

    def right_ranks(self) -> list[int]:
        """Return the ranks that hold the reference."""
        return [
            rank
            for rank, part in enumerate(self.parts)
            if part is not None and self.tolerance.deviation(part, self.reference) <= 1
        ]


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
        self._size = len(comparing.ranks.notes)
        self._wrong_parameters = {
            key[2] for key, result in results.items() if key[0] == "parameter" and _is_off(result)
        }

    def difference(self) -> Difference | None:
        """Return the first cause, or None if the program computes what the reference does."""
        seeds = self._seeds()
        if seeds is not None:
            return seeds
        causes = [key for key in self._results if self._is_cause(key) and not self._is_excused(key)]
        if not any(self._matters(key) for key in causes):
            return self._same_batch()
        return self._say(self._case(causes[0]))

    def unexplained(self) -> list[Key]:
        """Return the tensors that no placement explains, though nothing that matters is wrong."""
        return [key for key, result in self._results.items() if _is_off(result)]

    # ------------------------------------------------------------------------------ what matters

    def _is_cause(self, key: Key) -> bool:
        """Return True if a tensor is not as it should be."""
        result = self._results[key]
        if key[0] == "start":
            return False
        if _is_off(result):
            return key[0] != "gradient" or self._gradient_matters(key)
        if key[0] == "gradient" and key[2] in self._wrong_parameters:
            return bool(self._partial_axes(key))
        return False

    def _is_excused(self, key: Key) -> bool:
        """Return True for an output after which all outputs and the loss of the step are right."""
        if key[0] not in ("input", "output"):
            return False
        step = [own for own in self._results if own[1] == key[1]]
        later = [own for own in step[step.index(key) + 1 :] if own[0] in ("output", "loss")]
        has_loss = any(own[0] == "loss" for own in later)
        return has_loss and not any(_is_off(self._results[own]) for own in later)

    def _matters(self, key: Key) -> bool:
        """Return True if a tensor that is a cause changes what the program learns."""
        if key[0] in ("gradient", "parameter"):
            return True
        return not self._comparing.has_training

    def _gradient_matters(self, key: Key) -> bool:
        """Return True unless the program makes up for it, as ZeRO does with its own buffers."""
        if key[2] in self._wrong_parameters:
            return True
        optimizers = " ".join(self._comparing.ranks.notes[0].optimizers)
        if not any(name in optimizers for name in ADAPTIVE):
            return False
        is_scaled = self._results[key].holds and not self._partial_axes(key)
        return is_scaled or len(self._case(key).equal_ranks()) == 1

    def _partial_axes(self, key: Key) -> list[int]:
        """Return the axes along which a gradient is partial, but its parameter isn't."""
        return [axis for axis, way in enumerate(self._results[key].placement) if way == "P"]

    def _case(self, key: Key) -> Case:
        comparing = self._comparing
        result = self._results[key]
        reference = comparing.references(key)[0]
        return Case(key, result, comparing.parts(key), reference, comparing.tolerance(key))

    # -------------------------------------------------------------------------------- the start

    def _seeds(self) -> Difference | None:
        """Return the difference for replicas that were drawn with different seeds."""
        different = []
        for key in self._results:
            if key[0] == "start":
                case = self._case(key)
                whole = [part for part in case.parts if part is not None]
                is_whole = all(part.lengths == case.reference.lengths for part in whole)
                if is_whole and len(case.equal_ranks()) > 1:
                    different.append(case)
        if not different:
            return None
        first = different[0]
        groups = [plural_ranks(group).lower() for group in first.equal_ranks()]
        return Difference(
            "seeds",
            f"The ranks start with different values of {_names(different)}.",
            (f"They differ between {listing(groups[:MANY])}.", *self._copied_line()),
            HINTS["seeds"],
            "start",
            first.key[2],
            ranks=tuple(sorted(rank for group in first.equal_ranks()[1:] for rank in group)),
        )

    def _copied_line(self) -> tuple[str, ...]:
        copied = any(notes.copied for notes in self._comparing.ranks.notes)
        return ("Everything else was compared from the reference's values.",) if copied else ()

    # ------------------------------------------------------------------------------- the verdicts

    def _say(self, case: Case) -> Difference:
        kind = case.key[0]
        if kind == "input":
            found = self._say_input(case)
        elif kind == "output":
            found = self._say_output(case)
        elif kind == "loss":
            found = self._say_loss(case)
        elif kind == "gradient":
            found = self._say_gradient(case)
        else:
            found = self._say_parameter(case)
        return found

    def _made(
        self,
        case: Case,
        cause: str,
        what: str,
        hint: str,
        facts: Sequence[str] = (),
        axis: str = "",
        ranks: Sequence[int] = (),
        factor: float = 1.0,
    ) -> Difference:
        """Return a difference, with its line and with what agrees before it."""
        kind, step, name = case.key
        line = self._line(case.key)
        facts = [*facts, *([f"At {line}."] if line else []), *self._agreed(case.key)]
        return Difference(
            cause, what, tuple(facts), hint, kind, name, step, axis, tuple(ranks), factor, line
        )

    def _line(self, key: Key) -> str:
        notes = self._comparing.ranks
        if key[0] in ("gradient", "loss"):
            return notes.notes[0].backward
        if key[0] == "parameter":
            return notes.notes[0].stepped
        if key[0] in ("output", "input"):
            note = notes.note(key if key[0] == "output" else ("output", key[1], "model"))
            return note.line if note else ""
        return ""

    def _agreed(self, until: Key) -> Iterator[str]:
        """Yield the sentence on the tensors before one."""
        counts: Counter[str] = Counter()
        for key, result in self._results.items():
            if key == until:
                break
            if key[0] not in OWN and not _is_off(result):
                counts[key[0]] += 1
        texts = [
            f"the {kind}" if count == 1 else plural(count, kind).replace("losss", "losses")
            for kind, count in counts.items()
        ]
        if texts:
            verb = "agree" if sum(counts.values()) > 1 else "agrees"
            yield f"Before that, {listing(texts)} {verb}."

    # ---------------------------------------------------------------------------------- the data

    def _rows(self, key: Key) -> tuple[list[int], int]:
        """Return the rows of each rank's input, and the reference's."""
        tables = self._comparing.ranks.tables
        rows = [table[key][0].rows if key in table else 0 for table in tables]
        note = self._comparing.reference.note(key)
        return rows, note.rows if note else 0

    def _say_input(self, case: Case) -> Difference:
        rows, expected = self._rows(case.key)
        groups = case.equal_ranks()
        distinct = sum(rows[group[0]] for group in groups)
        each = f"{rows[0]:,} on each rank" if len(set(rows)) == 1 else "on each rank: "
        each += "" if len(set(rows)) == 1 else listing([f"{count:,}" for count in rows])
        facts = [f"Rows of the input: {each}, {expected:,} in the reference."]
        if len(groups) == 1 and self._size > 1:
            what = "every rank gets the same input, and it isn't the reference's."
            return self._made(
                case, "data", f"Step {case.key[1]}: {what}", HINTS["all equal"], facts
            )
        if distinct > expected:
            what = (
                f"Step {case.key[1]}: the global batch is {_times(distinct / expected)} the "
                f"reference's: it grows with the number of ranks."
            )
            hint = HINTS["growth"].format(rows=distinct)
            return self._made(case, "data", what, hint, facts, factor=distinct / expected)
        what = f"Step {case.key[1]}: the ranks' inputs together aren't the reference's."
        return self._made(case, "data", what, HINTS["other samples"], facts)

    def _same_batch(self) -> Difference | None:
        """Return the difference for ranks that all do the same work along an axis of data."""
        lines = {group for own in self._comparing.ranks.notes for group in own.data_groups}
        key = next((key for key in self._results if key[0] == "input"), None)
        if key is None or not self._comparing.has_training:
            return None
        used = [result for key, result in self._results.items() if key[0] != "start"]
        for index, axis in enumerate(self._mesh.axes):
            is_data = any(tuple(sorted(line)) in lines for line in self._mesh.lines(index))
            is_idle = all(result.placement[index : index + 1] == ("R",) for result in used)
            is_same = self._results[key].placement[index : index + 1] == ("R",)
            if is_same and (is_data or is_idle):
                ranks = self._mesh.lines(index)[0]
                who = "all ranks" if len(self._mesh.axes) == 1 else f"the ranks along {axis.name}"
                what = f"Step {key[1]}: {who} get the same input, the reference's whole batch."
                facts = [f"{plural_ranks(ranks)} compute the same, so their gradients are equal."]
                return self._made(
                    self._case(key), "data", what, HINTS["same batch"], facts, axis.name
                )
        return None

    # ------------------------------------------------------------------------ forward and loss

    def _say_output(self, case: Case) -> Difference:
        unlike = self._not_comparable(case.key)
        if unlike is not None:
            return unlike
        rows = self._other_rows(case.key[1])
        if rows is not None:
            return rows
        partial = self._partial_output(case.key)
        if partial is not None:
            before, index = partial
            axis = self._mesh.axes[index].name
            what = (
                f"Step {max(case.key[1], 0)}: the output of {before[2]} is partial"
                f"{self._over(index)}, and nothing reduces it before {case.key[2]}."
            )
            facts = [self._lines_text(index, "hold parts that add up to the reference")]
            return self._made(
                self._case(before), "forward", what, HINTS["partial output"], facts, axis
            )
        placement, times = self._bias_times(case)
        if "P" in placement:
            index = placement.index("P")
            what = f"{case.title} is partial{self._over(index)}, and nothing reduces it."
            does = "hold parts that add up to the reference, apart from the bias that each adds"
            facts = [self._lines_text(index, does)]
            axis = self._mesh.axes[index].name
            return self._made(case, "forward", what, HINTS["partial output"], facts, axis)
        if times:
            what = f"{case.title} has its bias {times} times: each rank adds it before the sum."
            return self._made(case, "forward", what, HINTS["bias"])
        what = f"{case.title} is not the reference's: {self._nearest(case)}."
        right = case.right_ranks()
        wrong = [rank for rank in range(self._size) if rank not in right] if right else []
        factor = case.result.factor
        return self._made(case, "forward", what, HINTS["forward"], ranks=wrong, factor=factor)

    def _partial_output(self, until: Key) -> tuple[Key, int] | None:
        """Return the last output before this one that nothing has reduced, and its axis.

        Masked rows of an embedding, too, are parts that must be added.
        """
        inputs = self._results.get(("input", until[1], "input"))
        partial: tuple[Key, int] | None = None
        for key, result in self._results.items():
            if key == until:
                break
            if key[:2] != ("output", until[1]):
                continue
            weight = self._results.get(("initial", 0, f"{key[2]}.weight"))
            for index, way in enumerate(result.placement):
                is_split = weight is not None and weight.placement[index : index + 1] == ("S(0)",)
                is_whole = inputs is not None and inputs.placement[index : index + 1] == ("R",)
                if way == "P" or (way == ROWS and is_split and is_whole):
                    partial = key, index
                elif way == "R" and partial is not None and partial[1] == index:
                    partial = None
        return partial

    def _other_rows(self, step: int) -> Difference | None:
        """Return the difference for ranks that split a layer, but not its input."""
        key = ("input", step, "input")
        if key not in self._results or _is_off(self._results[key]):
            return None
        data = {group for own in self._comparing.ranks.notes for group in own.data_groups}
        for index, axis in enumerate(self._mesh.axes):
            lines = self._mesh.lines(index)
            is_split = any(
                own[0] == "initial" and result.placement[index : index + 1] != ("R",)
                for own, result in self._results.items()
            )
            has_rows = self._results[key].placement[index : index + 1] == (ROWS,)
            if is_split and has_rows and not any(tuple(sorted(line)) in data for line in lines):
                what = f"Step {step}: the ranks along {axis.name} get different rows of the input."
                facts = [
                    f"{plural_ranks(lines[0])} hold pieces of layers that need the same input."
                ]
                own = self._case(key)
                return self._made(own, "data", what, HINTS["rows"], facts, axis.name, lines[0])
        return None

    def _bias_times(self, case: Case) -> tuple[Placement, int]:
        """Return the placement of which only a bias is too much, and how often it is added."""
        comparing = self._comparing
        bias_key = ("initial", 0, f"{case.key[2]}.bias")
        table = comparing.reference.tables[0]
        note = comparing.reference.note(case.key)
        if bias_key not in table or note is None or note.rows == 0:
            return (), 0
        bias = table[bias_key][1].columns[0][0]
        parts = self._mesh.parts(case.parts)
        ways = combinations(parts, case.tolerance, rows=False)
        for placement, whole in ways:
            if whole.lengths == case.reference.lengths == (len(bias),):
                extra = (whole.columns[0][0] - case.reference.columns[0][0]) / note.rows
                times = float(extra @ bias) / max(float(bias @ bias), 1e-300)
                left = float(np.linalg.norm(extra - round(times) * bias))
                if round(times) > 0 and left < 1e-3 * float(np.linalg.norm(bias)):
                    return placement, round(times) + 1
        return (), 0

    def _not_comparable(self, key: Key) -> Difference | None:
        """Return the difference for a module that can't agree on other numbers of ranks."""
        notes = self._comparing.ranks.notes
        called = [own[2] for own in self._results if own[0] == "output" and own[1] == key[1]]
        before = called[: called.index(key[2]) + 1] if key[2] in called else called
        until = {*before, *_ancestors(key[2])}
        for cause, names, does in (
            ("random", {name for own in notes for name in own.random}, "draws random numbers"),
            (
                "norm",
                {name for own in notes for name in own.local_norms},
                "normalises over the rows of one rank",
            ),
        ):
            name = next((name for name in called if name in names and name in until), None)
            if name is not None:
                own = self._case(("output", key[1], name))
                what = f"{name} can't be compared: it {does}."
                return self._made(own, cause, what, HINTS[cause])
        return None

    def _say_loss(self, case: Case) -> Difference:
        values = [float(part.columns[0][0, 0]) for part in case.parts if part is not None]
        expected = float(case.reference.columns[0][0, 0])
        mean = sum(values) / len(values)
        held = listing([f"{value:.6g}" for value in values[:8]])
        facts = [
            f"The ranks' mean is {mean:.6g}, the reference's loss {expected:.6g}.",
            f"The ranks have {held}.",
        ]
        if abs(case.result.factor - 1) > 1e-6:
            what = f"{case.title} is {_times(case.result.factor)} the reference."
            return self._made(case, "loss", what, HINTS["factor"], facts, factor=case.result.factor)
        what = (
            f"{case.title} is neither the mean nor the sum of the ranks', though all outputs agree."
        )
        hint = HINTS["order" if len(case.equal_ranks()) == 1 else "loss"]
        return self._made(case, "loss", what, hint, facts)

    # --------------------------------------------------------------------------- the gradients

    def _say_gradient(self, case: Case) -> Difference:
        result = case.result
        axes = [self._mesh.axes[index] for index in self._partial_axes(case.key)]
        if result.holds and axes:
            return self._say_partial(case, axes[0].name)
        if result.holds and "P" not in result.placement:
            return self._say_factor(case)
        zeros = [
            rank
            for rank, part in enumerate(case.parts)
            if part is not None and part.norm == 0 < case.reference.norm and all(part.lengths)
        ]
        if zeros:
            who = "every rank" if len(zeros) == self._size else plural_ranks(zeros).lower()
            what = f"{case.title} is zero on {who}."
            return self._made(case, "gradient", what, HINTS["zero"], ranks=zeros)
        by_rank = self._scales(case)
        if by_rank:
            facts = [self._scales_text(by_rank), *self._clips_text(case.key[1])]
            what = f"{case.title} is scaled by a different factor on each rank."
            return self._made(case, "gradient", what, HINTS["clipped"], facts)
        right = case.right_ranks()
        clips = self._clips_text(case.key[1])
        hint = HINTS["clipped" if clips else "gradient"]
        if right:
            wrong = [rank for rank in range(self._size) if rank not in right]
            what = (
                f"{case.title} is right on {plural_ranks(right).lower()}, and not on "
                f"{plural_ranks(wrong).lower()}."
            )
            return self._made(case, "gradient", what, hint, clips, ranks=wrong)
        what = f"{case.title} is not the reference's: {self._nearest(case)}."
        for index, axis in enumerate(self._mesh.axes):
            if not clips and self._differs_along(case, index):
                what = (
                    f"{case.title} differs between the ranks{self._over(index, 'along')}, though "
                    "they hold the same parameter."
                )
                hint = HINTS["contribution"].format(over=self._over(index))
                return self._made(case, "gradient", what, hint, axis=axis.name)
        return self._made(case, "gradient", what, hint, clips)

    def _differs_along(self, case: Case, index: int) -> bool:
        """Return True if ranks along an axis hold the same parameter, but not the same gradient."""
        own = self._results.get(("initial", 0, case.key[2]))
        if own is None or own.placement[index : index + 1] != ("R",):
            return False
        groups = case.equal_ranks()
        return any(
            not set(line) <= set(group)
            for line in self._mesh.lines(index)
            for group in groups
            if line[0] in group
        )

    def _say_partial(self, case: Case, axis: str) -> Difference:
        """Return the difference for a gradient whose parts must still be added."""
        index = next(i for i, own in enumerate(self._mesh.axes) if own.name == axis)
        size = self._mesh.axes[index].size
        same = [
            key[2]
            for key in self._results
            if key[0] == "gradient"
            and key[1] == case.key[1]
            and self._partial_axes(key) == self._partial_axes(case.key)
            and self._results[key].holds
        ]
        gradients = sum(key[0] == "gradient" and key[1] == case.key[1] for key in self._results)
        factor = case.result.factor
        is_mean = abs(factor - size) < 1e-3 * size
        does = "whose mean is the reference" if is_mean else "that add up to the reference"
        if not is_mean and abs(factor - 1) > 1e-3:
            does += f" times {_number(factor)}"
        facts = [self._lines_text(index, f"hold parts {does}")]
        if len(same) == gradients > 1:
            facts.append(f"The same goes for all {gradients:,} parameters.")
        elif len(same) > 1:
            facts.append(f"The same goes for {_listed(same[1:])}.")
        over = self._over(index)
        what = f"{case.title} is not reduced{over}."
        hint = HINTS["unreduced" if is_mean else "partial"].format(over=over)
        return self._made(case, "gradient", what, hint, facts, axis)

    def _say_factor(self, case: Case) -> Difference:
        factor = case.result.factor
        same = [
            key
            for key, result in self._results.items()
            if key[:2] == case.key[:2] and abs(result.factor - factor) < 1e-3 * abs(factor)
        ]
        facts = []
        if len(same) > 1:
            facts.append(f"The same goes for {plural(len(same) - 1, 'other gradient')}.")
        facts += self._clips_text(case.key[1])
        sizes = {self._size, *(axis.size for axis in self._mesh.axes)}
        hint = HINTS["factor"]
        if any(abs(factor - size) < 1e-3 * size for size in sizes):
            hint = HINTS["times ranks"]
        elif any(abs(factor * size - 1) < 1e-3 for size in sizes):
            hint = HINTS["one per"]
        elif facts and self._clips_text(case.key[1]):
            hint = HINTS["clipped"]
        what = f"{case.title} is {_times(factor)} the reference."
        return self._made(case, "gradient", what, hint, facts, factor=factor)

    # ------------------------------------------------------------------------------ parameters

    def _say_parameter(self, case: Case) -> Difference:
        if case.key[0] == "initial":
            what = f"The initial {case.key[2]} isn't the reference's."
            return self._made(case, "start", what, HINTS["start"])
        step = case.key[1]
        own = (notes.rates for notes in self._comparing.ranks.notes)
        rates = [rates[step] if step < len(rates) else math.nan for rates in own]
        facts = []
        hint = HINTS["parameter"]
        if len(set(rates)) > 1:
            facts.append(f"Learning rates: {_by_rank(dict(enumerate(rates)))}.")
            hint = HINTS["rates"]
        clips = self._clips_text(step)
        if clips:
            hint = HINTS["clipped"]
        facts += clips
        groups = case.equal_ranks()
        right = case.right_ranks()
        wrong = [rank for rank in range(self._size) if rank not in right]
        updates = self._updates(case)
        if updates and not clips:
            facts.append(f"Its update, in multiples of the reference's: {_by_rank(updates)}.")
        if right and wrong:
            what = (
                f"{case.title} is right after the step on {plural_ranks(right).lower()}, "
                f"and not on {plural_ranks(wrong).lower()}."
            )
            return self._made(case, "parameter", what, hint, facts, ranks=wrong)
        held = "differs between the ranks after the step"
        if len(groups) == 1:
            held = "is the same on all ranks after the step, but not the reference's"
        if any(part and part.lengths != case.reference.lengths for part in case.parts):
            held = "is not the reference's after the step"
        what = f"{case.title} {held}, though its gradient agrees."
        factors = set(updates.values())
        factor = factors.pop() if len(factors) == 1 else 1.0
        return self._made(case, "parameter", what, hint, facts, factor=factor)

    def _updates(self, case: Case) -> dict[int, float]:
        """Return each rank's update of a replicated parameter, as a multiple of the reference's."""
        comparing = self._comparing
        before = comparing.before(case.key, comparing.reference.tables[0])
        if before is None or before.lengths != case.reference.lengths:
            return {}
        expected = case.reference.columns[0][0] - before.columns[0][0]
        square = float(expected @ expected)
        updates = {}
        for rank, (part, table) in enumerate(zip(case.parts, comparing.ranks.tables, strict=True)):
            own = comparing.before(case.key, table)
            if part is None or own is None or part.lengths != case.reference.lengths or not square:
                return {}
            update = part.columns[0][0] - own.columns[0][0]
            factor = float(update @ expected) / square
            if np.linalg.norm(update - factor * expected) > 0.01 * np.linalg.norm(update):
                return {}
            updates[rank] = float(f"{factor:.3g}")
        return updates

    # ------------------------------------------------------------------------------- sentences

    def _over(self, index: int, word: str = "over") -> str:
        """Return `` over tp``; empty if there is only one axis."""
        return f" {word} {self._mesh.axes[index].name}" if len(self._mesh.axes) > 1 else ""

    def _lines_text(self, index: int, does: str) -> str:
        """Return a sentence on each line of an axis: ``Ranks 0-1 hold x; so do ranks 2-3.``."""
        lines = [plural_ranks(line) for line in self._mesh.lines(index)]
        rest = [f"so do {line.lower()}" for line in lines[1:MANY]]
        more = ["and so on"] if len(lines) > MANY else []
        return "; ".join([f"{lines[0]} {does}", *rest, *more]) + "."

    def _nearest(self, case: Case) -> str:
        """Return what the ranks hold instead of the reference."""
        result = case.result
        if result.holds and result.factor != 1:
            spread = " · ".join(result.placement)
            return f"it is {_times(result.factor)} the reference, as {spread}"
        groups = case.equal_ranks()
        if len(groups) == 1:
            who = f"{plural_ranks(groups[0]).lower()} hold{'s' * (len(groups[0]) == 1)} other"
            return (
                f"{who if len(groups[0]) < self._size else 'all ranks hold the same other'} values"
            )
        return "no placement of the ranks' tensors explains it"

    def _scales(self, case: Case) -> dict[int, float]:
        """Return each rank's factor, if all hold multiples of the reference or of their piece."""
        by_rank: dict[int, float] = {}
        for rank, part in enumerate(case.parts):
            piece = part and self._piece(case, rank, part)
            if part and not all(part.lengths):
                by_rank[rank] = math.nan  # it holds nothing
            elif part and piece:
                own = Sketch(piece.dims, (part.columns[part.dims.index(piece.dims[0])],))
                for factor in scales(piece, [own], case.tolerance, simple=False).values():
                    by_rank[rank] = factor
        held = {rank: factor for rank, factor in by_rank.items() if not math.isnan(factor)}
        return held if len(by_rank) == self._size else {}

    def _piece(self, case: Case, rank: int, part: Sketch) -> Sketch | None:
        """Return the columns of the reference that a rank holds."""
        if part.lengths == case.reference.lengths:
            dim = part.dims[0]
            return case.reference.slice(dim, 0, part.lengths[0])
        own = self._results.get(("initial", 0, case.key[2]))
        splits = [
            (axis, int(way[2:-1]))
            for axis, way in enumerate(own.placement if own else ())
            if way.startswith("S(")
        ]
        if len(splits) != 1:
            return None
        axis, dim = splits[0]
        line = next(line for line in self._mesh.lines(axis) if rank in line)
        at = case.reference.dims.index(dim)
        before = [case.parts[other] for other in line[: line.index(rank)]]
        start = sum(other.lengths[at] for other in before if other is not None)
        return case.reference.slice(dim, start, part.lengths[at])

    def _scales_text(self, by_rank: Mapping[int, float]) -> str:
        return f"In multiples of the reference: {_by_rank(by_rank)}."

    def _clips_text(self, step: int) -> list[str]:
        """Return the sentence on the norms that the ranks clipped by, if they differ."""

        def clip_of(clips: Sequence[Clip]) -> Clip | None:
            return next((clip for clip in clips if clip.step == step), None)

        comparing = self._comparing
        expected = clip_of(comparing.reference.notes[0].clips)
        own = [clip_of(notes.clips) for notes in comparing.ranks.notes]
        norms = {rank: clip.norm for rank, clip in enumerate(own) if clip is not None}
        if expected is None or not norms:
            return []
        if len(norms) < self._size:
            return [f"Only {plural_ranks(list(norms)).lower()} called clip_grad_norm_."]
        if all(abs(norm - expected.norm) <= 1e-3 * expected.norm for norm in norms.values()):
            return []
        line = next(clip.line for clip in own if clip is not None)
        how = f"clip_grad_norm_ at {line} computed the norm {_by_rank(norms)}"
        return [f"{how}; the reference's is {expected.norm:.4g}."]


def plural_ranks(ranks: Sequence[int]) -> str:
    """Return ``Rank 2`` or ``Ranks 0-1, 3``."""
    return f"Rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"


def _ancestors(name: str) -> set[str]:
    """Return the names of the modules that contain one: ``a.b`` and ``a`` for ``a.b.c``."""
    parts = name.split(".")
    return {"model", *(".".join(parts[:count]) for count in range(1, len(parts)))}


def _is_off(result: Explanation) -> bool:
    return not result.holds or result.factor != 1


def _by_rank(values: Mapping[int, float]) -> str:
    """Return ``0.5 on rank 0, 2 on ranks 1-3``."""
    ranks: dict[str, list[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(f"{value:.4g}", []).append(rank)
    texts = [f"{value} on {plural_ranks(own).lower()}" for value, own in ranks.items()]
    return listing(texts[:8])


def _number(factor: float) -> str:
    """Return a factor as a whole number, as one over a whole number, or with three digits."""
    if abs(factor - round(factor)) < 1e-3 * abs(factor) and round(factor):
        return str(round(factor))
    if factor and abs(1 / factor - round(1 / factor)) < 1e-3 / abs(factor):
        return f"1/{round(1 / factor)}"
    return f"{factor:.3g}"


def _times(factor: float) -> str:
    """Return ``4 times`` or ``1/4 of``."""
    text = _number(factor)
    return f"{text} of" if text.startswith("1/") else f"{text} times"


def _names(cases: Sequence[Case]) -> str:
    return _listed([case.key[2] for case in cases])


def _listed(names: Sequence[str]) -> str:
    """Return names as a list; of many the first ones and a count."""
    if len(names) <= MANY:
        return listing(list(names))
    return f"{', '.join(names[:3])} and {plural(len(names) - 3, 'other parameter')}"
