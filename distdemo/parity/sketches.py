"""Sketches: how tensors are compared without keeping them.

A sketch keeps one or all dimensions of a tensor: for each of these, the sum and the sum of squares
over all other dimensions, in float64::

    [1 2]      kept: dim 1      [4 6 | 10 20]
    [3 4]                        sums  squares

Sketches of parts can be combined into the sketch of the whole, whichever way it was split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sketch of a tensor, or of several added up.

    Attributes:
        dims: Dimensions that are kept.
        sums: Sums of the elements in each column, per kept dimension.
        squares: Sums of their squares; empty if they are unknown, as those of a sum of tensors.
        rows: Number of elements per column of the first kept dimension.
    """

    dims: tuple[int, ...]
    sums: tuple[Numbers, ...]
    squares: tuple[Numbers, ...]
    rows: int = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Length of each kept dimension."""
        return tuple(map(len, self.sums))

    @property
    def norm(self) -> float:
        """Norm of the tensor; the smallest that its sums allow if the squares are unknown."""
        squares = self.squares[0] if self.squares else self.sums[0] ** 2 / max(self.rows, 1)
        return float(np.sqrt(squares.sum()))

    def scaled(self, factor: float) -> Sketch:
        """Return the sketch of the tensor times a factor."""
        sums = tuple(factor * columns for columns in self.sums)
        squares = tuple(factor * factor * columns for columns in self.squares)
        return replace(self, sums=sums, squares=squares)

    def emptied(self) -> Sketch:
        """Return the sketch of a tensor of this shape that is zero."""
        zeros = tuple(map(np.zeros_like, self.sums))
        return replace(self, sums=zeros, squares=zeros)

    def slice(self, dim: int, start: int, length: int) -> Sketch:
        """Return the kept columns of a slice along a dimension; other dimensions are unknown."""
        index = self.dims.index(dim)
        columns = slice(start, start + length)
        squares = tuple(kept[columns] for kept in self.squares[index : index + 1])
        return Sketch((dim,), (self.sums[index][columns],), squares)

    def with_sorted(self, dim: int) -> Sketch:
        """Return the sketch with the columns of a dimension in a canonical order."""
        return _together(
            [self],
            lambda index, columns: np.sort(columns[0]) if self.dims[index] == dim else columns[0],
        )


def added(parts: Sequence[Sketch]) -> Sketch | None:
    """Return the sketch of tensors whose rows are those of one; None if the lengths differ."""
    if len({part.lengths for part in parts}) > 1:
        return None
    return _together(parts, lambda _, columns: np.sum(columns, axis=0))


def summed(parts: Sequence[Sketch]) -> Sketch | None:
    """Return the sketch of a sum of tensors; None if the lengths differ."""
    whole = added(parts)
    return whole and replace(whole, squares=(), rows=parts[0].rows)


def minus(one: Sketch, other: Sketch) -> Sketch:
    """Return the differences of the columns of two sketches."""
    return _together([one, other], lambda _, columns: columns[0] - columns[1])


def joined(parts: Sequence[Sketch], dim: int) -> Sketch | None:
    """Return the sketch of tensors joined along a dimension; None if other lengths differ."""
    at = parts[0].dims.index(dim)
    if len({part.lengths[:at] + part.lengths[at + 1 :] for part in parts}) > 1:
        return None
    whole = _together(
        parts,
        lambda index, columns: np.concatenate(columns) if index == at else np.sum(columns, axis=0),
    )
    return replace(whole, rows=parts[0].rows)


def _together(
    parts: Sequence[Sketch], combine: Callable[[int, Sequence[Numbers]], Numbers]
) -> Sketch:
    """Return the sketch whose columns a function combines for each index of a kept dimension."""

    def combined(columns: Iterable[tuple[Numbers, ...]]) -> tuple[Numbers, ...]:
        by_dim = enumerate(zip(*columns, strict=False))  # none if the squares of one are unknown
        return tuple(combine(index, of_dim) for index, of_dim in by_dim)

    sums = combined(part.sums for part in parts)
    squares = combined(part.squares for part in parts)
    return Sketch(parts[0].dims, sums, squares, sum(part.rows for part in parts))


def distance(one: Sketch, other: Sketch) -> tuple[float, float]:
    """Return the largest distances of sums and of squares; infinite if the lengths differ.

    That of squares is 0 if one of them is unknown.
    """
    if one.lengths != other.lengths:
        return math.inf, math.inf
    sums = max(map(_distance, one.sums, other.sums), default=0.0)
    return sums, max(map(_distance, one.squares, other.squares), default=0.0)


def _distance(one: Numbers, other: Numbers) -> float:
    """Return the length of a difference; infinite if it isn't a number."""
    value = float(np.linalg.norm(one - other))
    return math.inf if math.isnan(value) else value
