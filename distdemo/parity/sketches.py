"""Sketches: how tensors are compared without keeping them, and the files that carry them.

A sketch keeps one or all dimensions of a tensor: for each of these, the sum and the sum of squares
over all other dimensions, in float64::

    [1 2]      kept: dim 1      [4 6 | 10 20]
    [3 4]                        sums  squares

Sketches of parts can be combined into the sketch of the whole, whichever way it was split.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distdemo.encoding import decode, encode, loads
from distdemo.errors import DistdemoError
from distdemo.files import read_file
from distdemo.parity.records import Note, RankNotes

Numbers = NDArray[np.float64]
MAX_BYTES = 512 << 20  # bytes of the numbers of one rank
MAX_NOTES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sketch of a tensor, or of several added up.

    Attributes:
        dims: Dimensions that are kept.
        sums: Sums of the elements in each column, per kept dimension.
        squares: Sums of their squares; None if they are unknown, as those of a sum of tensors.
        rows: Number of elements per column of the first kept dimension.
    """

    dims: tuple[int, ...]
    sums: tuple[Numbers, ...]
    squares: tuple[Numbers, ...] | None
    rows: int = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Length of each kept dimension."""
        return tuple(map(len, self.sums))

    @property
    def has_squares(self) -> bool:
        """True if the sums of squares are known."""
        return self.squares is not None

    @property
    def norm(self) -> float:
        """Norm of the tensor; NaN if the squares are unknown."""
        return math.nan if self.squares is None else float(np.sqrt(self.squares[0].sum()))

    def scaled(self, factor: float) -> Sketch:
        """Return the sketch of the tensor times a factor."""
        squares = self.squares and tuple(factor * factor * columns for columns in self.squares)
        return replace(self, sums=tuple(factor * columns for columns in self.sums), squares=squares)

    def emptied(self) -> Sketch:
        """Return the sketch of a tensor of this shape that is zero."""
        zeros = tuple(map(np.zeros_like, self.sums))
        return replace(self, sums=zeros, squares=zeros)

    def slice(self, dim: int, start: int, length: int) -> Sketch:
        """Return the kept columns of a slice along a dimension; other dimensions are unknown."""
        index = self.dims.index(dim)
        columns = slice(start, start + length)
        squares = self.squares and (self.squares[index][columns],)
        return Sketch((dim,), (self.sums[index][columns],), squares)

    def with_sorted(self, dim: int) -> Sketch:
        """Return the sketch with the columns of a dimension in a canonical order."""
        index = self.dims.index(dim)

        def in_order(columns: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
            return (*columns[:index], np.sort(columns[index]), *columns[index + 1 :])

        squares = self.squares and in_order(self.squares)
        return replace(self, sums=in_order(self.sums), squares=squares)


def added(parts: Sequence[Sketch]) -> Sketch | None:
    """Return the sketch of tensors whose rows are those of one; None if the lengths differ."""
    if len({part.lengths for part in parts}) > 1:
        return None
    return _together(parts, lambda _, columns: np.sum(columns, axis=0))


def summed(parts: Sequence[Sketch]) -> Sketch | None:
    """Return the sketch of a sum of tensors; None if the lengths differ."""
    whole = added(parts)
    return whole and replace(whole, squares=None, rows=parts[0].rows)


def minus(one: Sketch, other: Sketch) -> Sketch:
    """Return the differences of the columns of two sketches, whose squares are known."""
    assert one.squares is not None
    assert other.squares is not None
    squares = tuple(map(np.subtract, one.squares, other.squares))
    return Sketch(one.dims, tuple(map(np.subtract, one.sums, other.sums)), squares)


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
        return tuple(itertools.starmap(combine, enumerate(zip(*columns, strict=True))))

    known = [part.squares for part in parts if part.squares is not None]
    squares = combined(known) if len(known) == len(parts) else None
    sums = combined(part.sums for part in parts)
    return Sketch(parts[0].dims, sums, squares, sum(part.rows for part in parts))


def distance(one: Sketch, other: Sketch) -> tuple[float, float]:
    """Return the largest distances of sums and of squares; infinite if the lengths differ.

    That of squares is 0 if one of them is unknown.
    """
    if one.lengths != other.lengths:
        return math.inf, math.inf
    sums = max(map(_distance, one.sums, other.sums), default=0.0)
    if one.squares is None or other.squares is None:
        return sums, 0.0
    return sums, max(map(_distance, one.squares, other.squares), default=0.0)


def _distance(one: Numbers, other: Numbers) -> float:
    """Return the length of a difference; infinite if it isn't a number."""
    value = float(np.linalg.norm(one - other))
    return math.inf if math.isnan(value) else value


# --------------------------------------------------------------------------------------- the files


def write_notes(folder: Path, notes: RankNotes, sketches: Iterable[Sketch]) -> None:
    """Write what a rank has noted: a JSON document, and the numbers of its sketches in order."""
    with (folder / f"rank-{notes.rank}.f64").open("wb") as file:
        for sketch in sketches:
            for columns in zip(sketch.sums, sketch.squares or (), strict=True):
                file.write(np.asarray(columns, dtype="<f8").tobytes())
    text = json.dumps(encode(notes, decodable=True))
    (folder / f"rank-{notes.rank}.json").write_text(text, encoding="utf-8")


def read_notes(folder: Path, rank: int) -> tuple[RankNotes, list[Sketch]] | None:
    """Return a rank's notes with their sketches, or None if it wrote none.

    Raises:
        DistdemoError: The files are damaged.
    """
    try:
        text = read_file(folder / f"rank-{rank}.json", max_bytes=MAX_NOTES_BYTES)
        data = read_file(folder / f"rank-{rank}.f64", max_bytes=MAX_BYTES)
        notes = decode(RankNotes, loads(text, max_bytes=MAX_NOTES_BYTES))
        return notes, list(_sketches(notes.notes, np.frombuffer(data, dtype="<f8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DistdemoError(
            f"What rank {rank} has recorded can't be read.",
            f"{str(error).rstrip('.')}.",
            "Check that the program leaves distdemo's temporary files alone.",
        ) from error


def _sketches(notes: Sequence[Note], numbers: Numbers) -> Iterator[Sketch]:
    at = 0
    for note in notes:
        if not note.lengths or len(note.lengths) != len(note.dims):
            raise ValueError(f"{note.name} has {len(note.lengths)} dimensions")
        sums = []
        squares = []
        for length in note.lengths:
            if length < 0 or at + 2 * length > len(numbers):
                raise ValueError("there are fewer numbers than the notes say")
            sums.append(numbers[at : at + length])
            squares.append(numbers[at + length : at + 2 * length])
            at += 2 * length
        yield Sketch(note.dims, tuple(sums), tuple(squares), note.rows)
