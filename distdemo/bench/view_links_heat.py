"""Figures of every pair of ranks as a map in the terminal: from down, to across.

Where there are too many ranks, the map is of blocks of them, each with its worst link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.color import Color
from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from distdemo.bench.linking import Link, LinksReport
from distdemo.bench.view_numbers import digits
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading

MANY = 16  # ranks that are shown one by one
SPREAD = 2.0  # times the best figure that the darkest shade stands for at least: noise stays light
SHADES = ("#ffffcc", "#fed976", "#fd8d3c", "#e31a1c", "#800026")
"""From fast to slow: each darker than the one before, for whoever sees no colours."""
LIGHT = 3  # of them that need black letters
SLOW, WRONG = "!", "x"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a link.

    Attributes:
        name: over its map, with its unit.
        pick: of a link, in SI units; 0 or less: not measured.
        unit: in which it is shown.
        high: more is better.
    """

    name: str
    pick: Callable[[Link], float]
    unit: float
    high: bool

    def worst(self, links: Sequence[Link]) -> float:
        """The worst of some links; 0 if none of them was measured."""
        values = [value for link in links if (value := self.pick(link)) > 0]
        return (min if self.high else max)(values, default=0.0)

    def shown(self, value: float) -> str:
        """In the map's unit."""
        return digits(value / self.unit)


def measures(links: Sequence[Link]) -> list[Measure]:
    """Both figures, in the units that fit the links."""
    slowest = max((link.latency for link in links), default=0.0)
    fast = max((link.bandwidth for link in links), default=0.0)
    time, time_unit = ("ms", 1e-3) if slowest >= 0.1 else ("µs", 1e-6)
    rate, rate_unit = ("GB/s", 1e9) if fast >= 1e8 else ("MB/s", 1e6)
    return [
        Measure(f"Latency, {time}", lambda link: link.latency, time_unit, high=False),
        Measure(f"Bandwidth, {rate}", lambda link: link.bandwidth, rate_unit, high=True),
    ]


def block_size(ranks: int) -> int:
    """How many neighbouring ranks share a row, so that there are ``MANY`` rows at most."""
    return -(-ranks // MANY)


@dataclass(frozen=True, slots=True)
class Shade:
    """From a figure to a background; on a logarithmic scale."""

    best: float
    worst: float

    @staticmethod
    def of(values: Sequence[float], measure: Measure) -> Shade:
        """The scale from the best of these to the worst, or to ``SPREAD`` times the best."""
        if not values:
            return Shade(1.0, SPREAD)
        if measure.high:
            return Shade(max(values), min(*values, max(values) / SPREAD))
        return Shade(min(values), max(*values, min(values) * SPREAD))

    def style(self, value: float) -> Style:
        """Black letters on a light shade, white ones on a dark one."""
        share = math.log(value / self.best) / math.log(self.worst / self.best)
        step = min(len(SHADES) - 1, max(0, round(share * (len(SHADES) - 1))))
        letters = "black" if step < LIGHT else "white"
        return Style(color=Color.parse(letters), bgcolor=Color.parse(SHADES[step]))


@dataclass(frozen=True, slots=True)
class Map:
    """A map of one figure.

    Attributes:
        names: of its rows, and of its columns: ranks, or blocks of them.
        cells: the links by row and column.
        width: columns of the terminal that a cell takes.
    """

    names: Sequence[str]
    cells: Mapping[tuple[int, int], Sequence[Link]]
    measure: Measure
    shade: Shade
    width: int
    sign: Signs

    def table(self, columns: range) -> Table:
        """Some of its columns."""
        table = Table(box=None, padding=0, pad_edge=False, header_style="bold")
        table.add_column("", justify="right", no_wrap=True, style="bold")
        for column in columns:
            name = f"{self.names[column]} "
            table.add_column(name, justify="right", no_wrap=True, min_width=self.width)
        for row, name in enumerate(self.names):
            cells = (self.cell(self.cells.get((row, column), [])) for column in columns)
            table.add_row(f"{name} ", *cells)
        return table

    def cell(self, links: Sequence[Link]) -> Text:
        """The worst figure, on its shade; marked where a link is slow or was wrong."""
        value = self.measure.worst(links)
        if value <= 0:
            return Text(f"{self.sign.none} ".rjust(self.width), style=colours.QUIET)
        slow = SLOW if any(link.slow for link in links) else " "
        mark = WRONG if any(link.wrong for link in links) else slow
        text = f"{self.measure.shown(value)}{mark}".rjust(self.width)
        return Text(text, style=self.shade.style(value))


def _map(report: LinksReport, measure: Measure, console: Console) -> Iterator[RenderableType]:
    """As many columns beside each other as fit, and the rest below."""
    ranks = report.spec.world.world_size
    step = block_size(ranks)
    cells: dict[tuple[int, int], list[Link]] = {}
    for link in report.links:
        cells.setdefault((link.src // step, link.dst // step), []).append(link)
    names = [_name(first, step, ranks) for first in range(0, ranks, step)]
    values = [value for links in cells.values() if (value := measure.worst(links)) > 0]
    width = max([*map(len, names), *(len(measure.shown(value)) + 1 for value in values)]) + 2
    left = console.width - max(map(len, names)) - 1
    width -= width * len(names) > left  # closer to each other where that saves room
    drawn = Map(names, cells, measure, Shade.of(values, measure), width, signs(console))
    room = max(1, left // width)
    for begin in range(0, len(names), room):
        yield drawn.table(range(begin, min(len(names), begin + room)))


def _name(first: int, step: int, ranks: int) -> str:
    last = min(ranks, first + step) - 1
    return str(first) if first == last else f"{first}-{last}"


def heat_maps(report: LinksReport, console: Console) -> Iterator[RenderableType]:
    """A map of latency and one of bandwidth."""
    for measure in measures(report.links):
        yield Text()
        yield heading(f"{measure.name}: from down, to across")
        yield from _map(report, measure, console)
