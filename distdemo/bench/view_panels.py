"""The two panels of a measurement's plot: time, and bandwidth with its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from distdemo.bench.old_records import BenchReport, Row
from distdemo.bench.view_limits import bounds
from distdemo.bench.view_numbers import rate_text, short_size
from distdemo.view.numbers import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TICKS = 8  # sizes that are named
LIMIT = "#555555"
NEAR = 1.35  # limits nearer to each other than this have their words on two sides
Pick = Callable[[Row, float], float]
"""A figure of a row, from a time of it."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A series as it is drawn.

    Attributes:
        mark: its form, as matplotlib names it.
        line: of what it is made, likewise.
        hollow: marks have a white middle and are smaller, to be seen on another's.
    """

    name: str
    rows: Sequence[Row]
    colour: str
    mark: str
    line: str = "-"
    hollow: bool = False


def time_panel(axes: Axes, curves: Sequence[Curve]) -> None:
    """The median of each size, with its interval and with p10 to p90 as bands."""
    _draw(axes, curves, lambda _, seconds: seconds)
    _frame(axes, curves, "Time, median", duration)


def bandwidth_panel(axes: Axes, curves: Sequence[Curve], report: BenchReport) -> None:
    """The bus bandwidth of each size, and the limits as labelled lines."""
    _draw(axes, curves, lambda row, seconds: row.factor * row.size / seconds)
    _frame(axes, curves, "Bus bandwidth", rate_text)
    _limits(axes, bounds(report))


def _draw(axes: Axes, curves: Sequence[Curve], pick: Pick) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for curve in curves:
        rows = [row for row in curve.rows if row.median > 0 and pick(row, row.median) > 0]
        sizes = [row.size for row in rows]
        _bands(axes, rows, curve.colour, pick)
        axes.plot(sizes, [pick(row, row.median) for row in rows], label=curve.name, **_look(curve))


def _look(curve: Curve) -> dict[str, Any]:
    return {
        "color": curve.colour,
        "marker": curve.mark,
        "markersize": 3.5 if curve.hollow else 6,
        "markerfacecolor": "white" if curve.hollow else curve.colour,
        "markeredgewidth": 1.0,
        "linewidth": 1.1 if curve.hollow else 1.8,
        "linestyle": curve.line,
        "zorder": 3,
    }


def _bands(axes: Axes, rows: Sequence[Row], colour: str, pick: Pick) -> None:
    """From p10 to p90 in a light shade, the interval of the median in a darker one."""
    sizes = [row.size for row in rows]
    lows = [pick(row, row.p10) for row in rows]
    highs = [pick(row, row.p90) for row in rows]
    axes.fill_between(sizes, lows, highs, color=colour, alpha=0.12, linewidth=0)
    known = [(row, row.interval) for row in rows if row.interval and row.interval[0] > 0]
    axes.fill_between(
        [row.size for row, _ in known],
        [pick(row, low) for row, (low, _) in known],
        [pick(row, high) for row, (_, high) in known],
        color=colour,
        alpha=0.25,
        linewidth=0,
    )


def _frame(axes: Axes, curves: Sequence[Curve], title: str, text: Callable[[float], str]) -> None:
    """Names and ticks of both axes."""
    axes.set_xlabel("Size")
    axes.set_ylabel(title)
    sizes = sorted({row.size for curve in curves for row in curve.rows})
    axes.xaxis.set_major_locator(FixedLocator(_ticks(sizes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
    axes.xaxis.set_minor_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(text(value))))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelrotation=0, labelsize=9)
    axes.tick_params(axis="both", which="minor", length=2)


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Some of the sizes, evenly, the largest among them."""
    step = -(-len(sizes) // MOST_TICKS)
    return sorted(sizes[::-1][:: max(1, step)])


def _short(text: str) -> str:
    """A power of ten without its decimals: ``1.00 ms`` is ``1 ms``."""
    number, _, unit = text.partition(" ")
    return f"{float(number):g} {unit}"


def _limits(axes: Axes, limits: Sequence[tuple[str, float]]) -> None:
    """Over the left, where bandwidths of small sizes leave room."""
    before = 0.0
    for words, bandwidth in sorted(limits, key=lambda limit: limit[1]):
        above = not before or bandwidth / before > NEAR
        axes.axhline(bandwidth, color=LIMIT, linewidth=1.2, linestyle=(0, (6, 3)), zorder=2)
        axes.annotate(
            words,
            xy=(0, bandwidth),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3 if above else -3),
            textcoords="offset points",
            va="bottom" if above else "top",
            fontsize=9,
            color=LIMIT,
        )
        before = bandwidth
    if limits:
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, 1.6 * before))
