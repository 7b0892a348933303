"""Sketches: how tensors are compared without keeping them, and the files that carry them.

A sketch keeps one or all dimensions of a tensor: for each of these, the sum and the sum of squares
over all other dimensions, in float64::

    [1 2]      kept: dim 1      [4 6 | 10 20]
    [3 4]                        sums  squares

Sketches of parts can be combined into the sketch of the whole, whichever way it was split.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
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
        columns: Array per kept dimension: sums in row 0, sums of squares in row 1, which are NaN
            if unknown.
        rows: Number of elements per column of the first kept dimension.
    """

    dims: tuple[int, ...]
    columns: tuple[Numbers, ...]
    rows: int = 0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Length of each kept dimension."""
        return tuple(column.shape[1] for column in self.columns)

    @property
    def has_squares(self) -> bool:
        """True if the sums of squares are known, as they are unless parts have been added."""
        return not any(np.isnan(column[1]).all() for column in self.columns if column.size)

    @property
    def norm(self) -> float:
        """Norm of the tensor."""
        return float(np.sqrt(self.columns[0][1].sum()))

    def scaled(self, factor: float) -> Sketch:
        """Return the sketch of the tensor times a factor."""
        by = np.array([[factor], [factor * factor]])
        return replace(self, columns=tuple(column * by for column in self.columns))

    def emptied(self) -> Sketch:
        """Return the sketch of a tensor of this shape that is zero."""
        return replace(self, columns=tuple(map(np.zeros_like, self.columns)))

    def slice(self, dim: int, start: int, length: int) -> Sketch:
        """Return the kept columns of a slice along a dimension; other dimensions are unknown."""
        column = self.columns[self.dims.index(dim)]
        return Sketch((dim,), (column[:, start : start + length],))

    def with_sorted(self, dim: int) -> Sketch:
        """Return the sketch with the columns of a dimension in a canonical order."""
        columns = list(self.columns)
        at = self.dims.index(dim)
        columns[at] = np.sort(columns[at], axis=1)
        return replace(self, columns=tuple(columns))


def added(parts: Sequence[Sketch], *, squares: bool = True) -> Sketch | None:
    """Return the sum of sketches of the same lengths.

    Args:
        parts: Sketches.
        squares: True if the parts are rows of a tensor, False if they are terms of a sum, whose
            squares are unknown.
    """
    if len({part.lengths for part in parts}) > 1:
        return None
    columns = []
    for together in zip(*(part.columns for part in parts), strict=True):
        total = np.sum(together, axis=0)
        if not squares:
            total[1] = np.nan
        columns.append(total)
    rows = sum(part.rows for part in parts) if squares else parts[0].rows
    return Sketch(parts[0].dims, tuple(columns), rows)


def joined(parts: Sequence[Sketch], dim: int) -> Sketch | None:
    """Return the sketch of tensors joined along a dimension."""
    at = parts[0].dims.index(dim)
    if len({part.lengths[:at] + part.lengths[at + 1 :] for part in parts}) > 1:
        return None
    columns = [
        np.concatenate(together, axis=1) if index == at else np.sum(together, axis=0)
        for index, together in enumerate(zip(*(part.columns for part in parts), strict=True))
    ]
    return Sketch(parts[0].dims, tuple(columns), parts[0].rows)


def distance(one: Sketch, other: Sketch) -> tuple[float, float]:
    """Return the largest distances of sums and of squares; infinite if the lengths differ."""
    if one.lengths != other.lengths:
        return np.inf, np.inf
    sums = squares = 0.0
    for mine, its in zip(one.columns, other.columns, strict=True):
        sums = max(sums, _length(mine[0], its[0]))
        if not (np.isnan(mine[1]).all() or np.isnan(its[1]).all()):
            squares = max(squares, _length(mine[1], its[1]))
    return sums, squares


def _length(one: Numbers, other: Numbers) -> float:
    """Return the length of a difference; infinite if it isn't a number."""
    value = float(np.linalg.norm(one - other))
    return np.inf if np.isnan(value) else value


# --------------------------------------------------------------------------------------- the files


def write_notes(folder: Path, notes: RankNotes, numbers: Iterable[Numbers]) -> None:
    """Write what a rank has noted: a JSON document, and the numbers of its notes in order."""
    with (folder / f"rank-{notes.rank}.f64").open("wb") as file:
        for array in numbers:
            file.write(np.ascontiguousarray(array, dtype="<f8").tobytes())
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
        columns = []
        for length in note.lengths:
            if length < 0 or at + 2 * length > len(numbers):
                raise ValueError("there are fewer numbers than the notes say")
            columns.append(numbers[at : at + 2 * length].reshape(2, length))
            at += 2 * length
        if not columns or len(columns) != len(note.dims):
            raise ValueError(f"{note.name} has {len(columns)} dimensions")
        yield Sketch(note.dims, tuple(columns), note.rows)
