"""Time and bandwidth against size, drawn with matplotlib: a line a series, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from distdemo.bench.answer import headline, labels
from distdemo.bench.records import CONFIDENCE, BenchReport, Row
from distdemo.bench.view import bounds
from distdemo.view.format import duration, percent, rate, short_size
from distdemo.view.plot import COLOURS, LINES, MARKS, SETTINGS, entitle, saved, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (11, 6.2)  # inches
MOST_TICKS = 8  # sizes that are named
LIMIT = "#555555"
NEAR = 1.35  # limits nearer to each other than this have their words on two sides


@dataclass(frozen=True, slots=True)
class Curve:
    """A series as it is drawn.

    Attributes:
        line: of what it is made, as matplotlib names it; so with the mark.
        hollow: marks have a white middle and are smaller, to be seen on another's.
    """

    name: str
    rows: Sequence[Row]
    colour: str
    mark: str
    line: str
    hollow: bool


def draw(report: BenchReport, kind: str) -> bytes:
    """The picture.

    Args:
        report: with rows.
        kind: ``png`` or ``svg``.
    """
    with rc_context(SETTINGS):
        figure = Figure(figsize=SIZE, layout="constrained")
        left, right = figure.subplots(1, 2)
        curves = _curves(report)
        _panel(left, curves, lambda _, seconds: seconds, "Time, median", duration)
        _panel(
            right,
            curves,
            lambda row, seconds: row.busbw_factor * row.size_bytes / seconds,
            "Bus bandwidth",
            rate,
        )
        _draw_limits(right, bounds(report))
        handles, names = left.get_legend_handles_labels()
        if handles:
            longest = max(map(len, names))
            columns = max(1, min(len(names), 130 // (longest + 8)))
            figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
        about = [str(report.environment.get(name, "")) for name in ("host", "processor")]
        about += [f"{name} {version}" for name, version in report.versions.items()]
        bands = f"lines: medians; shaded: p10 to p90, darker: {percent(CONFIDENCE)} interval"
        entitle(figure, headline(report), f"{' · '.join(filter(None, about))}\n{bands}")
        return saved(figure, kind)


def _curves(report: BenchReport) -> list[Curve]:
    """A colour and a mark for each op, a line for each backend; hollow marks are in place.

    Where there is but one op, each backend has a colour and a mark of its own.
    """
    found: list[Curve] = []
    looks: dict[tuple[str, ...], int] = {}
    lines: dict[str, int] = {}
    several = len({series.spec.op for series in report.series}) > 1
    for series, words in zip(report.series, labels(report.series), strict=True):
        said = {"in place", "out of place", *([series.spec.backend] if several else [])}
        look = looks.setdefault(tuple(word for word in words if word not in said), len(looks))
        line = lines.setdefault(series.spec.backend, len(lines)) if several else 0
        rows = [row for row in series.rows if row.size_bytes and row.median_s > 0]
        if rows:  # what has no size, as a barrier, has no place on an axis of sizes
            found.append(
                Curve(
                    " ".join(words),
                    rows,
                    COLOURS[look % len(COLOURS)],
                    MARKS[look % len(MARKS)],
                    LINES[line % len(LINES)],
                    hollow="in place" in words,
                )
            )
    return found


def _panel(
    axes: Axes,
    curves: Sequence[Curve],
    pick: Callable[[Row, float], float],
    title: str,
    text: Callable[[float], str],
) -> None:
    """A figure of each row, from a time of it: the median's as a line, intervals as bands."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for curve in curves:
        rows = [row for row in curve.rows if pick(row, row.median_s) > 0]
        axes.fill_between(
            [row.size_bytes for row in rows],
            [pick(row, row.p10_s) for row in rows],
            [pick(row, row.p90_s) for row in rows],
            color=curve.colour,
            alpha=0.12,
            linewidth=0,
        )
        known = [(row, row.interval_s) for row in rows if row.interval_s and row.interval_s[0] > 0]
        axes.fill_between(
            [row.size_bytes for row, _ in known],
            [pick(row, low) for row, (low, _) in known],
            [pick(row, high) for row, (_, high) in known],
            color=curve.colour,
            alpha=0.25,
            linewidth=0,
        )
        axes.plot(
            [row.size_bytes for row in rows],
            [pick(row, row.median_s) for row in rows],
            label=curve.name,
            color=curve.colour,
            marker=curve.mark,
            markersize=3.5 if curve.hollow else 6,
            markerfacecolor="white" if curve.hollow else curve.colour,
            linewidth=1.1 if curve.hollow else 1.8,
            linestyle=curve.line,
            zorder=3,
        )
    sizes = sorted({row.size_bytes for curve in curves for row in curve.rows})
    step = max(1, -(-len(sizes) // MOST_TICKS))
    axes.set_xlabel("Size")
    axes.set_ylabel(title)
    axes.xaxis.set_major_locator(FixedLocator(sizes[::-1][::step][::-1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(text(value))))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)


def _draw_limits(axes: Axes, limits: Sequence[tuple[str, float]]) -> None:
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
