"""Results: each tensor of the ranks next to the reference's, and what verdicts ask of them.

Pure logic, no torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from distdemo.parity.compare import PARAMETERS, Comparing, enclosing
from distdemo.parity.notes import Mesh, RankNotes
from distdemo.parity.placements import (
    Explanation,
    Placement,
    Tolerance,
    explain,
    fits,
    has_columns_of,
    in_shape,
    meshes,
    multiple,
    named,
    split_dim,
)
from distdemo.parity.records import GRADIENTS, Comparison, Difference, Reason, TensorId
from distdemo.parity.sketches import Sketch
from distdemo.parity.wording import ranks_named, times
from distdemo.view.format import listing, plural

MANY = 4  # names that a sentence lists
PairByRank = Mapping[int, tuple[Sketch, Sketch]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared(Explanation):
    """A tensor of the ranks next to the reference's, with its nearest explanation.

    Attributes:
        key: Tensor.
        parts: Sketch of each rank.
        reference: The reference's.
        tolerance: How far they may differ.
        pieces: Piece that a rank holds, with the same piece of the reference, by rank, unless both
            are zero. Of a split tensor only the columns of the split dimension are known.
        incomparable: Reason why it can't be compared, or empty.
    """

    key: TensorId
    parts: Sequence[Sketch | None]
    reference: Sketch
    tolerance: Tolerance
    pieces: PairByRank
    incomparable: Reason | Literal[""]

    @property
    def rows(self) -> dict[int, int]:
        """Number of rows on each rank that holds the tensor."""
        return {rank: part.rows for rank, part in enumerate(self.parts) if part is not None}

    def equal_ranks(self) -> list[list[int]]:
        """Return the ranks in groups that hold the same values, the largest group first."""
        groups: list[tuple[Sketch, list[int]]] = []
        for rank, (part, _) in self.wholes.items():
            same = (group for first, group in groups if self.tolerance.deviation(part, first) <= 1)
            group = next(same, None)
            if group is None:
                groups.append((part, [rank]))
            else:
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
        return {rank: factor for rank, factor in factors.items() if factor}


class Results(dict[TensorId, Compared]):
    """Tensors that the ranks have, in the order of causes.

    Args:
        comparing: The runs.

    Attributes:
        mesh: Mesh that explains the most tensors.
    """

    @np.errstate(invalid="ignore", over="ignore")  # NaN and infinity equal nothing
    def __init__(self, comparing: Comparing) -> None:
        super().__init__()
        self.comparing = comparing
        present = [key for key in comparing.keys if any(comparing.ranks.sketches(key))]
        explanations: dict[TensorId, Explanation] = {}
        most = -1
        for mesh in meshes(self.notes):
            candidates = self._explanations(mesh, present)
            count = sum(result.exact for result in candidates.values())
            if count > most:
                most = count
                self.mesh = mesh
                explanations = candidates
            if most == len(present):
                break
        wrong = wrong_parameters(explanations)
        absent = (key for key in comparing.keys if key.kind == "gradient" and key[1:] in wrong)
        absent_keys = [key for key in absent if key not in explanations]
        explanations |= self._explanations(self.mesh, absent_keys)
        placements = {key: result.placement for key, result in explanations.items()}
        inputs = [way for key, way in placements.items() if key.kind == "input"]
        starts = [way for key, way in placements.items() if key.kind == "initial"]
        self.mesh = named(self.mesh, inputs[0] if inputs else (), starts)
        self._unplaced = comparing.ranks.all_of("unplaced")
        for key in comparing.keys:
            if key in explanations:
                self[key] = self._compared(key, explanations[key])

    def _explanations(self, mesh: Mesh, keys: Iterable[TensorId]) -> dict[TensorId, Explanation]:
        """Return how each of these tensors is spread over the ranks of a mesh."""
        results: dict[TensorId, Explanation] = {}
        usual: Placement = ()
        for key in keys:
            parts = self.comparing.parts(key)
            references = self.comparing.references(key)
            tolerance = self.comparing.tolerance(key)
            alike = usual if key.kind == "output" else ()
            if key.kind in GRADIENTS and key.initial in results:
                alike = results[key.initial].placement
            ways = self.comparing.combinations(key, in_shape(mesh, parts))
            result = explain(references, ways, tolerance, alike)
            if key.kind in GRADIENTS and not result.holds:
                # It may be right on all ranks that need it, such as those of a parameter that is
                # tied in two stages.
                held = {rank: part for rank, part in enumerate(parts) if part is not None}
                deviation = max(tolerance.deviation(part, references[0]) for part in held.values())
                if deviation <= 1:
                    result = Explanation((f"@{','.join(map(str, held))}",), deviation)
            results[key] = result
            if key.kind == "input":
                usual = result.placement
        return results

    def _compared(self, key: TensorId, result: Explanation) -> Compared:
        parts = self.comparing.parts(key)
        reference = self.comparing.references(key)[0]
        pieces = {
            rank: (part, expected)
            for rank, part, expected in self._pieces(key, parts, reference)
            if part.norm or expected.norm
        }
        return Compared(
            result.placement,
            result.deviation,
            result.factor,
            result.reordered,
            key=key,
            parts=parts,
            reference=reference,
            tolerance=self.comparing.tolerance(key),
            pieces=pieces,
            incomparable=self._incomparable(key, result, parts, reference),
        )

    def _pieces(
        self, key: TensorId, parts: Sequence[Sketch | None], reference: Sketch
    ) -> Iterator[tuple[int, Sketch, Sketch]]:
        dims = map(split_dim, self.placement(key.initial))
        splits = [(axis, dim) for axis, dim in enumerate(dims) if dim is not None]
        for rank, part in enumerate(parts):
            if part is None or not all(part.lengths):
                continue
            if part.lengths == reference.lengths:
                yield rank, part, reference
            elif len(splits) == 1:
                ((axis, dim),) = splits
                line = next(line for line in self.mesh.lines(axis) if rank in line)
                before = [parts[other] for other in line[: line.index(rank)]]
                start = sum(other.lengths[dim] for other in before if other is not None)
                length = part.lengths[dim]
                yield rank, part.slice(dim, 0, length), reference.slice(dim, start, length)

    def _incomparable(
        self,
        key: TensorId,
        result: Explanation,
        parts: Sequence[Sketch | None],
        reference: Sketch,
    ) -> Reason | Literal[""]:
        """Return the reason why a tensor can't be compared, or an empty text."""
        has_shape = key.kind in (*PARAMETERS, *GRADIENTS)
        if has_shape and not (result.holds or fits(in_shape(self.mesh, parts), reference)):
            return "shape"
        if key.kind in ("start", "initial"):
            is_placed = result.exact or key.name not in self._unplaced
            return "" if is_placed or key.kind == "start" else "start"
        return "tolerance" if result.holds and self.comparing.is_blind(key) else ""

    def records(self) -> tuple[Comparison, ...]:
        """Return the records of all tensors but the parameters that were replaced."""
        records = []
        for key, tensor in self.items():
            note = self.comparing.reference.note(key)
            norm = tensor.reference.norm
            tolerance = tensor.tolerance.sums / norm if norm > 0 else 0.0
            record = Comparison(
                key.kind,
                key.number,
                key.name,
                tensor.placement,
                tensor.exact,
                tensor.factor,
                tensor.deviation,
                tolerance if math.isfinite(tolerance) else 0.0,
                tensor.reordered,
                note.line if note else "",
                tensor.incomparable,
            )
            records.append(record)
        return tuple(record for record in records if record.kind != "start")

    @property
    def notes(self) -> Sequence[RankNotes]:
        """Notes of each rank."""
        return self.comparing.ranks.ranks

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.notes)

    @cached_property
    def right_gradients(self) -> dict[tuple[int, str], set[bool]]:
        """Verdicts on gradients, True if right, by step and module around their parameters.

        Those of a step are at its outermost module, ``model``. Zeros are left out.
        """
        right: dict[tuple[int, str], set[bool]] = {}
        for key, tensor in self.items():
            if key.kind == "gradient" and tensor.reference.norm:
                is_right = tensor.exact and not self.comparing.is_blind(key)
                for home in enclosing(key.name):
                    right.setdefault((key.step, home), set()).add(is_right)
        return right

    def alike(self, key: TensorId) -> list[Compared]:
        """Return the tensors of the same kind and step, in order."""
        return [tensor for other, tensor in self.items() if other[:2] == key[:2]]

    def placement(self, key: TensorId) -> Placement:
        """Return the placement of a tensor; empty if there is no such tensor."""
        return self[key].placement if key in self else ()

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
        what = f"Step {max(key.number, 1)}: {what}"
        if len(self.mesh.axes) == 1:
            more["axis"] = self.mesh.axes[0].name
        return Difference(cause, what, facts, hint, kind, name, key.number, line=line, **more)

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

    def nearest(self, tensor: Compared) -> str:
        """Return what the ranks hold instead of the reference."""
        if tensor.factor != 1:
            return f"it is {times(tensor.factor)} the reference, as {' · '.join(tensor.placement)}"
        groups = tensor.equal_ranks()
        if any(
            has_columns_of(part, tensor.reference, dim, tensor.tolerance)
            for part in tensor.parts
            if part is not None
            for dim in part.dims
        ):
            return "its columns are in another order"
        if len(groups) > 1:
            return "no placement of the ranks' tensors explains it"
        if len(groups[0]) == self.size:
            return "all ranks hold the same other values"
        return f"{ranks_named(groups[0])} hold{'s' * (len(groups[0]) == 1)} other values"


def wrong_parameters(results: Mapping[TensorId, Explanation]) -> set[tuple[int, str]]:
    """Return the steps and names of parameters that are wrong after a step."""
    return {
        key[1:] for key, result in results.items() if key.kind == "parameter" and not result.exact
    }
