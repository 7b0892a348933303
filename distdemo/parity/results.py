"""Results: what is known of a tensor that differs, and the sentences that all verdicts share.

Pure logic, no torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from distdemo.parity.compare import PARAMETERS, Comparing, enclosing
from distdemo.parity.placements import (
    Explanation,
    Placement,
    Tolerance,
    has_columns_of,
    multiple,
    split_dim,
)
from distdemo.parity.records import Difference, Mesh, RankNotes, TensorId
from distdemo.parity.sketches import Sketch
from distdemo.view.format import listing, plural, ranks_text

MANY = 4  # names that a sentence lists
NEAR = 1e-3  # relative difference of a factor from a number
PairByRank = Mapping[int, tuple[Sketch, Sketch]]
SUBJECTS = {
    "input": "the input",
    "loss": "the loss",
    "clipped": "the clipped gradient of {name}",
    "parameter": "{name}",
    "start": "the initial {name}",
    "initial": "the initial {name}",
}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A tensor, and its nearest explanation.

    Attributes:
        key: Tensor.
        result: Nearest explanation.
        parts: Sketch of each rank.
        reference: The reference's.
        tolerance: How far they may differ.
        pieces: Piece that a rank holds, with the same piece of the reference, by rank, unless both
            are zero. Of a split tensor only the columns of the split dimension are known.
    """

    key: TensorId
    result: Explanation
    parts: Sequence[Sketch | None]
    reference: Sketch
    tolerance: Tolerance
    pieces: PairByRank

    @property
    def rows(self) -> dict[int, int]:
        """Number of rows on each rank that holds the tensor."""
        return {rank: part.rows for rank, part in enumerate(self.parts) if part is not None}

    def equal_ranks(self) -> list[list[int]]:
        """Return the ranks in groups that hold the same values, the largest group first."""
        groups: list[tuple[Sketch, list[int]]] = []
        for rank, part in enumerate(self.parts):
            if part is not None:
                same = (
                    group for first, group in groups if self.tolerance.deviation(part, first) <= 1
                )
                group = next(same, None)
                if group is None:
                    groups.append((part, group := []))
                group.append(rank)
        return sorted((group for _, group in groups), key=len, reverse=True)

    @property
    def wholes(self) -> PairByRank:
        """Tensor of each rank that has one, with the whole reference, by rank."""
        return {rank: (part, self.reference) for rank, part in enumerate(self.parts) if part}

    def right_ranks(self, pieces: PairByRank) -> tuple[list[int], list[int]]:
        """Return the ranks whose pieces are right, and if there are any, the other ranks."""
        right = [
            rank
            for rank, (part, expected) in pieces.items()
            if self.tolerance.deviation(part, expected) <= 1
        ]
        return right, [rank for rank in pieces if right and rank not in right]

    def factors(self) -> dict[int, float]:
        """Return the factors of the ranks that hold a multiple of their piece of the reference."""
        factors = {
            rank: multiple(part, expected, self.tolerance)
            for rank, (part, expected) in self.pieces.items()
        }
        return {rank: factor for rank, factor in factors.items() if factor is not None}


def subject(key: TensorId) -> str:
    """Return a tensor as the subject of a sentence."""
    kind, _, name = key
    return SUBJECTS.get(kind, f"the {kind} of {{name}}").format(name=name)


@dataclass(frozen=True, eq=False)
class Results(Mapping[TensorId, Explanation]):
    """Explanation of each tensor, in the order of causes, and what a verdict asks of them.

    Attributes:
        comparing: The runs.
        mesh: Mesh that explains the most tensors.
        explanations: Explanation of each tensor.
    """

    comparing: Comparing
    mesh: Mesh
    explanations: Mapping[TensorId, Explanation]

    def __getitem__(self, key: TensorId) -> Explanation:
        return self.explanations[key]

    def __iter__(self) -> Iterator[TensorId]:
        return iter(self.explanations)

    def __len__(self) -> int:
        return len(self.explanations)

    @property
    def notes(self) -> tuple[RankNotes, ...]:
        """Notes of each rank."""
        return self.comparing.ranks.notes

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.notes)

    @cached_property
    def data_groups(self) -> set[tuple[int, ...]]:
        """Ranks of the groups over which DDP or FSDP reduces gradients."""
        return {group for own in self.notes for group in own.data_groups}

    @cached_property
    def _gradients(self) -> dict[TensorId, bool]:
        """True for each gradient that is right, False for one that isn't; zeros are left out."""
        return {
            key: result.exact and not self.comparing.is_blind(key)
            for key, result in self.items()
            if key.kind == "gradient" and self.comparing.references(key)[0].norm
        }

    @cached_property
    def steps_with_right_gradients(self) -> set[int]:
        """Steps in which a gradient is right."""
        return {step for (_, step, _), is_right in self._gradients.items() if is_right}

    @cached_property
    def gradients_of(self) -> dict[tuple[int, str], set[bool]]:
        """Whether gradients are right, by step and module around their parameters."""
        right: dict[tuple[int, str], set[bool]] = {}
        for (_, step, name), is_right in self._gradients.items():
            for home in enclosing(name):
                right.setdefault((step, home), set()).add(is_right)
        return right

    def suspect(self, key: TensorId) -> Suspect:
        """Return what is known of a tensor."""
        parts = self.comparing.parts(key)
        reference = self.comparing.references(key)[0]
        tolerance = self.comparing.tolerance(key)
        pieces = {
            rank: (part, expected)
            for rank, (part, expected) in self._pieces(key, parts, reference)
            if part.norm or expected.norm
        }
        return Suspect(key, self[key], parts, reference, tolerance, pieces)

    def _pieces(
        self, key: TensorId, parts: Sequence[Sketch | None], reference: Sketch
    ) -> Iterator[tuple[int, tuple[Sketch, Sketch]]]:
        dims = map(split_dim, self.placement(key.initial))
        splits = [(axis, dim) for axis, dim in enumerate(dims) if dim is not None]
        for rank, part in enumerate(parts):
            if part is None or not all(part.lengths):
                continue
            if part.lengths == reference.lengths:
                yield rank, (part, reference)
            elif len(splits) == 1:
                ((axis, dim),) = splits
                line = next(line for line in self.mesh.lines(axis) if rank in line)
                before = [parts[other] for other in line[: line.index(rank)]]
                start = sum(other.lengths[dim] for other in before if other is not None)
                length = part.lengths[dim]
                yield rank, (part.slice(dim, 0, length), reference.slice(dim, start, length))

    def alike(self, key: TensorId) -> list[TensorId]:
        """Return the tensors of the same kind and step, in order."""
        return [other for other in self if other[:2] == key[:2]]

    def placement(self, key: TensorId) -> Placement:
        """Return the placement of a tensor; empty if there is no such tensor."""
        result = self.get(key)
        return result.placement if result else ()

    def is_placed(self, key: TensorId, axis: int, placement: str) -> bool:
        """Return True if a tensor has this placement along an axis."""
        return self.placement(key)[axis : axis + 1] == (placement,)

    def difference(
        self,
        key: TensorId,
        cause: str,
        what: str,
        hint: str,
        facts: Sequence[str] = (),
        **more: Any,
    ) -> Difference:
        """Return a difference, with its line and what agrees before it."""
        kind, step, name = key
        notes = self.notes[0]
        lines = {
            "gradient": notes.backward,
            "clipped": notes.backward,
            "loss": notes.backward,
            "parameter": notes.stepped,
        }
        called = self.comparing.ranks.note(
            TensorId("output", step, "model") if kind == "input" else key
        )
        line = lines.get(kind, called.line if called else "")
        facts = (*facts, *([f"At {line}."] if line else []), *self._agreed(key))
        what = f"Step {max(step, 0)}: {what}"
        if len(self.mesh.axes) == 1:
            more["axis"] = self.mesh.axes[0].name
        return Difference(cause, what, facts, hint, kind, name, step, line=line, **more)

    def _agreed(self, until: TensorId) -> Iterator[str]:
        """Yield the sentence on the tensors before one."""
        keys = list(self)
        before = keys[: keys.index(until)]
        counts = Counter(
            key.kind for key in before if key.kind not in PARAMETERS and self[key].exact
        )
        texts = [
            f"the {kind}"
            if kind in ("input", "loss")
            else plural(count, "clipped gradient" if kind == "clipped" else kind)
            for kind, count in counts.items()
        ]
        if texts:
            yield f"Before that, {listing(texts)} agree{'s' * (counts.total() == 1)}."

    def over(self, index: int, word: str = "over") -> str:
        """Return `` over tp``; empty if there is only one axis."""
        return f" {word} {self.mesh.axes[index].name}" if len(self.mesh.axes) > 1 else ""

    def lines_text(self, index: int, does: str, parts: Sequence[Sketch | None]) -> str:
        """Return a sentence on each line of an axis: ``Ranks 0-1 hold x; so do ranks 2-3.``."""
        lines = ([rank for rank in line if parts[rank]] for line in self.mesh.lines(index))
        first, *others = [ranks_named(line) for line in lines if line]
        rest = [f"; so do {line}" for line in others[: MANY - 1]]
        return f"{first.capitalize()} {does}{''.join(rest)}{', ...' * (len(others) >= MANY)}."

    def nearest(self, suspect: Suspect) -> str:
        """Return what the ranks hold instead of the reference."""
        factor = suspect.result.factor
        if factor != 1:
            return f"it is {times(factor)} the reference, as {' · '.join(suspect.result.placement)}"
        groups = suspect.equal_ranks()
        if any(
            has_columns_of(part, suspect.reference, dim, suspect.tolerance)
            for part in suspect.parts
            if part is not None
            for dim in part.dims
        ):
            return "its columns are in another order"
        if len(groups) > 1:
            return "no placement of the ranks' tensors explains it"
        if len(groups[0]) == self.size:
            return "all ranks hold the same other values"
        return f"{ranks_named(groups[0])} hold{'s' * (len(groups[0]) == 1)} other values"


def ranks_named(ranks: Sequence[int]) -> str:
    """Return ``rank 2`` or ``ranks 0-1, 3``."""
    return f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"


def by_rank(values: Mapping[int, float]) -> str:
    """Return ``0.5 on rank 0 and 2 on ranks 1-3``."""
    ranks: dict[str, list[int]] = {}
    for rank, value in values.items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        ranks.setdefault(text, []).append(rank)
    return listing([f"{value} on {ranks_named(holders)}" for value, holders in ranks.items()][:8])


def _is_whole(value: float) -> bool:
    """Return True if a value is a whole number other than 0, but for rounding."""
    return round(value) != 0 and math.isclose(value, round(value), rel_tol=NEAR)


def number(factor: float) -> str:
    """Return a factor as a whole number, as one over a whole number, or with three digits."""
    if _is_whole(factor):
        return f"{round(factor)}"
    if _is_whole(1 / factor):
        return f"1/{round(1 / factor)}"
    return f"{factor:.3g}" if abs(factor - 1) > 0.01 else f"{factor:.6g}"


def times(factor: float) -> str:
    """Return ``4 times`` or ``1/4 of``."""
    is_share = _is_whole(1 / factor) and not _is_whole(factor)
    return f"{number(factor)} of" if is_share else f"{number(factor)} times"


def listed(names: Sequence[str]) -> str:
    """Return names as a list; of many the first ones and a count."""
    if len(names) <= MANY:
        return listing(list(names))
    return f"{', '.join(names[:3])} and {plural(len(names) - 3, 'other parameter')}"
