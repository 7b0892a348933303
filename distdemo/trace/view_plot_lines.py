"""Time against size: a line an algorithm, what the model says dashed, and where lines cross."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from distdemo.bench.fitting import Crossover
from distdemo.trace.contending import CompareReport, Contender
from distdemo.trace.view_amounts import short_bytes
from distdemo.trace.view_plot_looks import QUIET, Look, Measure, looks, measure, row_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TICKS = 8  # sizes that are named
NEAR = 4.0  # crossovers nearer to each other than this factor are labelled in two lines
EDGE = 2.0  # a crossover nearer to the largest size than this factor is labelled at its left
BETWEEN = 24  # points of a curve from one size to the next
Dashes = tuple[float, Sequence[float]]
DASHES: Dashes = (0, (4, 2))
Pick = Callable[[Contender], float | None]


def lines(axes: Axes, report: CompareReport) -> list[Line2D]:
    """Draw them.

    Args:
        axes: empty.
        report: of two sizes or more.

    Returns:
        What the legend shows.
    """
    shown = measure(report)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=shown.base)
    for look in looks(report).values():
        _line(axes, report, look, shown)
    _crossovers(axes, report)
    _frame(axes, report, shown)
    return _legend(report, shown)


def _line(axes: Axes, report: CompareReport, look: Look, shown: Measure) -> None:
    """What was measured with its interval; what is expected dashed, with marks if it is alone."""
    measured = _points(report, look, shown.measured)
    expected = _points(report, look, shown.expected)
    axes.plot(*_curve(expected), color=look.colour, linestyle=DASHES, linewidth=1.2, zorder=2)
    if not measured:
        axes.plot(*_axes(expected), color=look.colour, marker=look.mark, linestyle="", zorder=3)
        return
    low = _axes(_points(report, look, lambda row: row.timing.low if row.timing else None))
    high = _axes(_points(report, look, lambda row: row.timing.high if row.timing else None))
    if low[0] == high[0]:
        axes.vlines(low[0], low[1], high[1], color=look.colour, linewidth=1.2, alpha=0.6, zorder=2)
        for sizes, ends in (low, high):
            axes.plot(sizes, ends, color=look.colour, marker="_", linestyle="", alpha=0.6)
    axes.plot(*_axes(measured), color=look.colour, marker=look.mark, linewidth=1.8, zorder=3)


def _points(report: CompareReport, look: Look, pick: Pick) -> list[tuple[int, float]]:
    """Sizes and values; what is unknown, or nothing on an axis of logarithms, is left out."""
    found = ((arena, row_of(arena, look.label, report)) for arena in report.arenas)
    known = ((arena, None if row is None else pick(row)) for arena, row in found)
    points = [(arena.traffic.payload_bytes, value) for arena, value in known if value]
    return [(size, value) for size, value in points if size > 0 and value > 0]


def _axes(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [size for size, _ in points], [value for _, value in points]


def _curve(points: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """With points in between: what grows evenly with the size is no line on these axes."""
    found = [(float(size), value) for size, value in points[:1]]
    for (size, value), (larger, more) in pairwise(points):
        for step in range(1, BETWEEN + 1):
            at = size * (larger / size) ** (step / BETWEEN)
            found.append((at, value + (more - value) * (at - size) / (larger - size)))
    return [size for size, _ in found], [value for _, value in found]


def _crossovers(axes: Axes, report: CompareReport) -> None:
    """An upright line each, with its size at the top; two near each other in two lines."""
    sizes = [arena.traffic.payload_bytes for arena in report.arenas]
    before, lower = 0.0, False
    for each in _shown_crossovers(report):
        lower = bool(before) and each.size / before < NEAR and not lower
        last = each.size > max(sizes) / EDGE
        axes.axvline(each.size, color=QUIET, linestyle=":", linewidth=1.2, zorder=1)
        axes.annotate(
            short_bytes(each.size),
            xy=(each.size, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if last else 3, -15 if lower else -3),
            textcoords="offset points",
            va="top",
            ha="right" if last else "left",
            fontsize=8,
            color=QUIET,
        )
        before = each.size


def _shown_crossovers(report: CompareReport) -> list[Crossover]:
    """Those within the sizes."""
    sizes = [arena.traffic.payload_bytes for arena in report.arenas]
    return [each for each in report.crossovers if min(sizes) <= each.size <= max(sizes)]


def _frame(axes: Axes, report: CompareReport, shown: Measure) -> None:
    """Names and ticks of both axes, and room for the crossovers' words over the lines."""
    sizes = sorted({arena.traffic.payload_bytes for arena in report.arenas})
    step = max(1, -(-len(sizes) // MOST_TICKS))
    axes.set_xlabel("Size")
    axes.set_ylabel(shown.title)
    axes.xaxis.set_major_locator(FixedLocator(sorted(sizes[::-1][::step])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_bytes(value)))
    axes.xaxis.set_minor_locator(FixedLocator(sizes))
    axes.yaxis.set_major_locator(LogLocator(shown.base, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(shown.tick(value))))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.06)


def _short(text: str) -> str:
    """A power of ten without its decimals: ``1.00 ms`` is ``1 ms``."""
    number, _, unit = text.partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}"


def _legend(report: CompareReport, shown: Measure) -> list[Line2D]:
    """Colours and marks, then what dashes and dots mean."""
    found, ran = [], False
    for look in looks(report).values():
        measured = bool(_points(report, look, shown.measured))
        style = {"linestyle": "-" if measured else DASHES, "marker": look.mark}
        found.append(Line2D([], [], color=look.colour, label=look.label, **style))  # type: ignore[arg-type]  # matplotlib lists every style in its type
        ran |= measured
    if ran:
        found.append(Line2D([], [], color=QUIET, linestyle=DASHES, label=shown.words))
    if _shown_crossovers(report):
        words = "equally fast, by the model"
        found.append(Line2D([], [], color=QUIET, linestyle=":", label=words))
    return found
