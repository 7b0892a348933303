"""Infer from values how a tensor is spread over the ranks. Pure logic, no torch.

The ranks form a mesh. Along each of its axes the parts of a tensor are combined in every way that
is possible, until one sketch is left, which is compared with the reference's:

- ``R``: every rank holds the tensor
- ``S(batch)``: each holds other rows; sums and squares add up
- ``S(1)``: each holds a piece of this dimension
- ``P``: the tensors of all ranks must be added
- ``mean``: a loss whose mean is the reference
- ``@0``: only ranks at this position hold it
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial as partial_of
from operator import eq

import numpy as np
from numpy.typing import NDArray

from distdemo.parity.notes import Mesh, RankNotes
from distdemo.parity.records import Axis
from distdemo.parity.sketches import Sketch, added, distance, joined, summed

Grid = NDArray[np.object_]
"""Sketch of each rank, or None, in the shape of the mesh."""
Placement = tuple[str, ...]
Combine = Callable[[list[Sketch]], Sketch | None]
ROWS = "S(batch)"
MAX_AXES = 4
CLEAR = 10  # multiple of a tolerance above which a sum is not zero
NEAR = 1e-4  # of a factor to a whole number or its reciprocal
DEFAULT_NAMES = {1: ("ranks",), 2: ("outer", "inner"), 3: ("outer", "middle", "inner")}
"""Names of axes that the program has not named."""


# ---------------------------------------------------------------------------------------- the mesh


def meshes(notes: Sequence[RankNotes]) -> Iterator[Mesh]:
    """Yield the meshes that may explain the program, the likeliest first.

    These are the device meshes that the program created, then the factorisations of the number of
    ranks, those that have most of the program's groups first.
    """
    size = len(notes)
    groups = {group for rank_notes in notes for group in rank_notes.groups}
    created = dict.fromkeys(mesh for rank_notes in notes for mesh in rank_notes.meshes)
    names = {line: axis.name for mesh in created for axis, line in _lines(mesh) if axis.name}
    whole = [mesh for mesh in created if len(mesh.ranks) == size]
    others = [_row_major(shape, names) for shape in _factorisations(size)]

    def order(mesh: Mesh) -> tuple[int, int]:
        lines = {line for _, line in _lines(mesh)}
        return -len(lines & groups), len(mesh.axes)

    seen = set()
    for mesh in [*sorted(whole, key=lambda mesh: -len(mesh.axes)), *sorted(others, key=order)]:
        key = mesh.shape, mesh.ranks
        if key not in seen:
            seen.add(key)
            yield mesh


def _lines(mesh: Mesh) -> Iterator[tuple[Axis, tuple[int, ...]]]:
    """Yield each line of a mesh with its axis."""
    for index, axis in enumerate(mesh.axes):
        for line in mesh.lines(index):
            yield axis, line


def _row_major(shape: tuple[int, ...], names: Mapping[tuple[int, ...], str]) -> Mesh:
    """Return the mesh of a factorisation; an axis is named after one of its groups."""
    mesh = Mesh(tuple(Axis("", size) for size in shape), tuple(range(math.prod(shape))))
    found = [names.get(mesh.lines(index)[0], "") for index in range(len(shape))]
    return Mesh(tuple(map(Axis, found, shape)), mesh.ranks)


def _factorisations(size: int) -> list[tuple[int, ...]]:
    """Return the ordered factorisations of a number, with factors above 1: 4, 2 × 2."""
    if size == 1:
        return [()]
    shapes = [
        (factor, *rest)
        for factor in range(2, size + 1)
        if size % factor == 0
        for rest in _factorisations(size // factor)
    ]
    return [shape for shape in shapes if len(shape) <= MAX_AXES]


def named(mesh: Mesh, input_placement: Placement, parameters: Iterable[Placement]) -> Mesh:
    """Return the mesh with names for unnamed axes: ``dp`` splits rows, ``tp`` splits parameters."""
    placements = list(parameters)
    defaults = DEFAULT_NAMES.get(
        len(mesh.axes), [f"axis {index}" for index, _ in enumerate(mesh.axes)]
    )
    names = [axis.name for axis in mesh.axes]
    for index, name in enumerate(names):
        ways = {placement[index] for placement in placements if index < len(placement)}
        usual = ""
        if input_placement[index : index + 1] == (ROWS,):
            usual = "dp"
        elif any(way.startswith(("S", "@")) for way in ways):
            usual = "pp" if all(way.startswith("@") for way in ways) else "tp"
        names[index] = name or (usual if usual not in names else defaults[index])
    return Mesh(tuple(map(Axis, names, mesh.shape)), mesh.ranks)


def split_dim(axis_placement: str) -> int | None:
    """Return the dimension of ``S(0)``, ``S(1)`` and so on; None for other placements."""
    is_split = axis_placement.startswith("S(") and axis_placement != ROWS
    return int(axis_placement[2:-1]) if is_split else None


def split_dims(placement: Placement) -> list[int]:
    """Return the dimensions along which the axes split a tensor, one per axis that does."""
    return [dim for dim in map(split_dim, placement) if dim is not None]


# ---------------------------------------------------------------------------------- combinations


def in_shape(mesh: Mesh, by_rank: Sequence[Sketch | None]) -> Grid:
    """Return the ranks' sketches in the shape of a mesh."""
    parts = np.empty(len(mesh.ranks), dtype=object)
    parts[:] = [by_rank[rank] for rank in mesh.ranks]
    return parts.reshape(mesh.shape)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A way to combine the ranks' tensors.

    Attributes:
        placement: Placement per axis.
        deviation: Distance from the reference, as a multiple of the tolerated one.
        factor: Factor by which it is larger than the reference.
        reordered: True if columns are in another order.
    """

    placement: Placement
    deviation: float
    factor: float = 1.0
    reordered: bool = False

    @property
    def holds(self) -> bool:
        """True if it explains the tensor, up to its factor."""
        return self.deviation <= 1

    @property
    def exact(self) -> bool:
        """True if it explains the tensor."""
        return self.holds and self.factor == 1


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerated distances of sums and of squares."""

    sums: float
    squares: float

    def deviation(self, one: Sketch, other: Sketch) -> float:
        """Return the distance of two sketches as a multiple of the tolerated one."""
        sums, squares = distance(one, other)
        return max(_ratio(sums, self.sums), _ratio(squares, self.squares))


def _ratio(value: float, most: float) -> float:
    if most:
        return value / most
    return math.inf if value else 0.0


def combinations(
    parts: Grid, tolerance: Tolerance, without: AbstractSet[str] = frozenset()
) -> Iterator[tuple[Placement, Sketch]]:
    """Yield every placement that these parts allow, with the tensor that they make together.

    Args:
        parts: Sketches in the shape of the mesh.
        tolerance: Tolerance for replicas of a tensor.
        without: Placements that make no sense for this tensor: ``mean``, ``S(batch)``, ``P``.
    """
    for at, order in enumerate(itertools.permutations(range(parts.ndim))):
        for placement, whole in _combined(parts, order, tolerance, without):
            dims = split_dims(placement)
            order_matters = len(dims) > len(set(dims))  # a dimension is split along two axes
            if at == 0 or order_matters:
                yield placement, whole


def _combined(
    parts: Grid, order: Sequence[int], tolerance: Tolerance, without: AbstractSet[str]
) -> Iterator[tuple[Placement, Sketch]]:
    """Combine the parts along the last axis of this order, then along the other axes."""
    if parts.ndim == 0:
        if parts.item():
            yield (), parts.item()
        return
    axis = order[-1]
    rest = [other - (other > axis) for other in order[:-1]]
    moved = np.moveaxis(parts, axis, -1)
    lines = [list(line) for line in moved.reshape(-1, moved.shape[-1])]
    held = [[part for part in line if part] for line in lines]
    for name, combine in _combiners(lines, tolerance):
        if name in without:
            continue
        wholes = np.empty(len(lines), dtype=object)
        wholes[:] = [combine(parts) if parts else None for parts in held]
        if all(whole is not None for whole, parts in zip(wholes, held, strict=True) if parts):
            reduced = wholes.reshape(moved.shape[:-1])
            for placement, whole in _combined(reduced, rest, tolerance, without):
                yield (*placement[:axis], name, *placement[axis:]), whole


def _combiners(
    lines: Sequence[Sequence[Sketch | None]], tolerance: Tolerance
) -> list[tuple[str, Combine]]:
    """Return the ways to combine the parts of each line, with their names."""

    def replicated(parts: list[Sketch]) -> Sketch | None:
        same = all(tolerance.deviation(part, parts[0]) <= 1 for part in parts[1:])
        return parts[0] if same else None

    def mean(parts: list[Sketch]) -> Sketch | None:
        total = summed(parts)
        return None if total is None else total.scaled(1 / len(parts))

    def partial(parts: list[Sketch]) -> Sketch | None:
        """Return the sum, unless all ranks hold multiples of one tensor."""
        first, *others = [part for part in parts if part.norm > 0] or parts
        is_number = parts[0].lengths == (1,)  # any number is a multiple of any other
        is_scaled = others and all(multiple(part, first, tolerance) for part in others)
        if replicated(parts) or (is_scaled and not is_number):
            return None
        return summed(parts)

    held = {tuple(i for i, part in enumerate(line) if part) for line in lines if any(line)}
    if len(held) != 1:
        return []  # no rank holds it, or other ranks of each line
    ranks = held.pop()
    if len(ranks) < len(lines[0]):
        return [("@" + ",".join(map(str, ranks)), replicated)]
    dims, *others = {part.dims for line in lines for part in line if part}
    if others:
        return []  # of modules that only have the same name
    joins = [(f"S({dim})", partial_of(joined, dim=dim)) for dim in dims]
    return [("R", replicated), ("mean", mean), (ROWS, added), *joins, ("P", partial)]


# ----------------------------------------------------------------------------------- explanations


def explain(
    references: Sequence[Sketch],
    ways: Iterable[tuple[Placement, Sketch]],
    tolerance: Tolerance,
    usual: Placement = (),
) -> Explanation:
    """Return the placement that explains the parts, or else the nearest explanation.

    Of several the one that is most like the usual one, then the first. A placement that holds in
    another order of columns is the next best, then one that holds up to a factor, then the one
    with the smallest deviation.

    Args:
        references: The tensor of the reference, or several that it may be.
        ways: Combinations of the parts.
        tolerance: Tolerance of this tensor.
        usual: Placement of the model's input.
    """
    # If all sums are near zero, as those of a weight between a LayerNorm and a softmax, they prove
    # nothing about a partial tensor.
    sums = [float(np.linalg.norm(column)) for whole in references for column in whole.sums]
    is_zero_sum = all(length <= CLEAR * tolerance.sums for length in sums)
    pairs = []
    for placement, whole in ways:
        for reference in references:
            if "P" in placement and (whole.rows != reference.rows or is_zero_sum):
                continue
            if bool(whole.squares) == bool(reference.squares) and all(map(eq, placement, usual)):
                deviation = tolerance.deviation(whole, reference)
                if deviation <= 1:
                    return Explanation(placement, deviation)  # no other one is better
            pairs.append((placement, whole, reference))
    pairs.sort(key=lambda pair: bool(pair[1].squares) != bool(pair[2].squares))
    results = [
        Explanation(placement, tolerance.deviation(whole, reference))
        for placement, whole, reference in pairs
    ]
    exact = [result for result in results if result.holds]
    best = max(exact, key=lambda result: sum(map(eq, result.placement, usual)), default=None)
    if best is not None:
        return best
    for placement, whole, reference in pairs:
        dims = set(split_dims(placement))
        if len(dims) == 1 and has_columns_of(whole, reference, dims.pop(), tolerance):
            return Explanation(placement, 1.0, reordered=True)
    for placement, whole, reference in pairs:
        factor = _factor(whole, reference)
        if reference.lengths == (1,):
            factor = _simple(factor)
        if factor:
            scaled = Explanation(
                placement, tolerance.deviation(whole.scaled(1 / factor), reference), factor
            )
            if scaled.holds:
                return scaled
    return min(results, key=lambda result: result.deviation, default=Explanation((), math.inf))


def fits(parts: Grid, reference: Sketch) -> bool:
    """Return True if parts of these shapes, whatever their values, can make up a tensor."""
    empty = np.empty(parts.shape, dtype=object)
    for index, part in np.ndenumerate(parts):
        empty[index] = None if part is None else part.emptied()
    wholes = [whole for _, whole in combinations(empty, Tolerance(0.0, 0.0))]
    return not wholes or any(whole.lengths == reference.lengths for whole in wholes)


def has_columns_of(one: Sketch, other: Sketch, dim: int, tolerance: Tolerance) -> bool:
    """Return True if two sketches have the same columns along a dimension, in any order."""
    return (
        one.lengths == other.lengths
        and tolerance.deviation(one.with_sorted(dim), other.with_sorted(dim)) <= 1
    )


def multiple(part: Sketch, reference: Sketch, tolerance: Tolerance) -> float | None:
    """Return the factor by which a tensor is a multiple of another, or None if it is none."""
    factor = _factor(part, reference)
    is_multiple = factor and tolerance.deviation(part.scaled(1 / factor), reference) <= 1
    return factor if is_multiple else None


def _factor(whole: Sketch, reference: Sketch) -> float | None:
    """Return the factor that fits best, or None if there is none."""
    if whole.lengths != reference.lengths:
        return None
    sums = np.concatenate(whole.sums)
    expected = np.concatenate(reference.sums)
    square = float(expected @ expected)
    factor = float(sums @ expected) / square if square > 0 else 0.0
    if whole.squares and reference.squares and reference.norm > 0:
        size = whole.norm / reference.norm
        factor = -size if abs(factor + size) < NEAR * size else size
    return factor if math.isfinite(factor) and abs(factor) >= 1e-9 else None


def _simple(factor: float | None) -> float | None:
    """Return a whole number or its reciprocal that is near a factor, or None."""
    if factor is None:
        return None
    larger = max(abs(factor), 1 / abs(factor))
    whole = round(larger)
    if whole < 2 or abs(larger - whole) > NEAR * larger:
        return None
    return math.copysign(whole if abs(factor) > 1 else 1 / whole, factor)
