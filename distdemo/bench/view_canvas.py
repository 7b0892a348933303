"""A little picture of text: points on log axes in a panel of so many columns and rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.text import Text

from distdemo.bench.view_marks import Marks
from distdemo.view import colours

LABEL = 9  # columns for what stands left of the axis: ``1.20 GB/s``
TICKS = 4  # rows between two labels of the upright axis
BESIDE = 2  # columns between two labels of the other one


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic axis over so many cells."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        """The cell of a value; outside, the nearest."""
        if self.high <= self.low or value <= 0:
            return 0
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return min(self.cells - 1, max(0, round(share * (self.cells - 1))))

    def value(self, cell: int) -> float:
        """What lies in the middle of a cell."""
        if self.cells < 2:
            return self.low
        return self.low * math.pow(self.high / self.low, cell / (self.cells - 1))


@dataclass(slots=True)
class Panel:
    """A picture that grows point by point; the first row of ``cells`` is the highest."""

    title: str
    x: Scale
    y: Scale
    mark: Marks
    cells: list[list[tuple[str, str]]] = field(default_factory=list)
    crowded: bool = False

    def __post_init__(self) -> None:
        self.cells = [[(" ", "")] * self.x.cells for _ in range(self.y.cells)]

    def across(self, value: float) -> None:
        """A line from left to right."""
        row = self.cells[self._row(value)]
        row[:] = [(self.mark.limit, colours.QUIET)] * self.x.cells

    def curve(self, points: Sequence[tuple[float, float]], sign: str, style: str) -> None:
        """Points, and a trail between them."""
        for (x0, y0), (x1, y1) in pairwise(points):
            self._trail((self.x.place(x0), self._row(y0)), (self.x.place(x1), self._row(y1)))
        for x, y in points:
            self._point(self._row(y), self.x.place(x), sign, style)

    def _row(self, value: float) -> int:
        return self.y.cells - 1 - self.y.place(value)

    def _trail(self, begin: tuple[int, int], end: tuple[int, int]) -> None:
        for column in range(begin[0] + 1, end[0]):
            share = (column - begin[0]) / (end[0] - begin[0])
            row = round(begin[1] + share * (end[1] - begin[1]))
            if self.cells[row][column][0] == " ":
                self.cells[row][column] = (self.mark.trail, colours.QUIET)

    def _point(self, row: int, column: int, sign: str, style: str) -> None:
        there = self.cells[row][column][0]
        if there in self.mark.points + self.mark.several and there not in (sign, self.mark.trail):
            self.cells[row][column] = (self.mark.several, "bold")
            self.crowded = True
        else:
            self.cells[row][column] = (sign, style)

    def lines(self, x_label: str, y_labels: Sequence[str], x_ticks: Sequence[str]) -> list[Text]:
        """The picture, all lines of the same length.

        Args:
            x_label: under the axis.
            y_labels: one a row, the highest first; empty where there is none.
            x_ticks: one a column; empty where there is none.
        """
        width = LABEL + 1 + self.x.cells
        found = [Text(self.title.ljust(width), style="bold")]
        for label, row in zip(y_labels, self.cells, strict=True):
            line = Text(f"{label:>{LABEL}}{self.mark.up[bool(label)]}")
            for character, style in row:
                line.append(character, style=style)
            found.append(line)
        along = self.mark.along
        axis = "".join(along[2] if text else along[0] for text in x_ticks)
        found.append(Text(" " * LABEL + along[1] + axis))
        found.append(Text(_under(x_ticks, width)))
        return [*found, Text(x_label.rjust(width))] if x_label else found


def _under(x_ticks: Sequence[str], width: int) -> str:
    """The labels centred under their columns, within the panel."""
    line = [" "] * width
    for column, text in enumerate(x_ticks):
        begin = min(width - len(text), max(0, LABEL + 1 + column - len(text) // 2))
        line[begin : begin + len(text)] = text
    return "".join(line)


def spaced(labelled: Sequence[tuple[int, str]], cells: int) -> list[str]:
    """A label a cell, of those that have room beside each other; the first and last go first."""
    found = [""] * cells
    taken: list[tuple[int, int]] = []
    ends = [labelled[0], labelled[-1]] if labelled else []
    for cell, text in [*ends, *labelled[1:-1]]:
        half = len(text) // 2
        begin = min(cells - len(text), max(-LABEL, cell - half))
        end = begin + len(text)
        if all(end + BESIDE <= low or high + BESIDE <= begin for low, high in taken):
            found[cell] = text
            taken.append((begin, end))
    return found
