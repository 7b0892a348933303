"""Time and bandwidth against size, drawn with matplotlib: a line a series, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from distdemo.bench.answer import headline, names_of
from distdemo.bench.records import CONFIDENCE, BenchReport, Row
from distdemo.bench.view import bounds
from distdemo.view.format import duration, percent, rate, short_size
from distdemo.view.plot import COLOURS, LINES, MARKS, SETTINGS, entitle, saved, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (11, 6.2)  # inches
MOST_TICKS = 8  # sizes that are named
LIMIT = "#555555"


def draw(report: BenchReport, kind: str) -> bytes:
    """The picture.

    Args:
        report: with rows.
        kind: ``png`` or ``svg``.
    """
    with rc_context(SETTINGS):
        figure = Figure(figsize=SIZE, layout="constrained")
        left, right = figure.subplots(1, 2)
        _panel(left, report, lambda _, seconds: seconds, "Time, median", duration)
        _panel(
            right,
            report,
            lambda row, seconds: row.busbw_factor * row.size_bytes / seconds,
            "Bus bandwidth",
            rate,
        )
        _draw_limits(right, bounds(report))
        handles, names = left.get_legend_handles_labels()
        if handles:
            columns = max(1, min(len(names), 130 // (max(map(len, names)) + 8)))
            figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
        about = [str(report.environment.get(name, "")) for name in ("host", "processor")]
        about += [f"{name} {version}" for name, version in report.versions.items()]
        bands = f"lines: medians; shaded: p10 to p90, darker: {percent(CONFIDENCE)} interval"
        entitle(figure, headline(report), f"{' · '.join(filter(None, about))}\n{bands}")
        return saved(figure, kind)


def _panel(
    axes: Axes,
    report: BenchReport,
    pick: Callable[[Row, float], float],
    title: str,
    text: Callable[[float], str],
) -> None:
    """A figure of each row, from a time of it: the median's as a line, intervals as bands.

    A colour and a mark for each series, a line for each backend.
    """
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    backends = [setup.backend for setup in report.setups]
    sizes: set[int] = set()
    names = names_of(report.series)
    for number, series in enumerate(report.series):
        # What has no size, as a barrier, has no place on an axis of sizes; nor has 0 on this one.
        rows = [row for row in series.rows if row.size_bytes and pick(row, row.median_s) > 0]
        sizes.update(row.size_bytes for row in rows)
        if not rows:
            continue
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
        spreads = [(row, row.p10_s, row.p90_s) for row in rows]
        intervals = [(row, *row.interval_s) for row in rows if row.interval_s]
        for bands, alpha in ((spreads, 0.12), (intervals, 0.25)):
            axes.fill_between(
                [row.size_bytes for row, _, _ in bands],
                [pick(row, low) for row, low, _ in bands],
                [pick(row, high) for row, _, high in bands],
                color=colour,
                alpha=alpha,
                linewidth=0,
            )
        axes.plot(
            [row.size_bytes for row in rows],
            [pick(row, row.median_s) for row in rows],
            label=names[series.spec],
            color=colour,
            marker=mark,
            linestyle=LINES[backends.index(series.spec.backend) % len(LINES)],
            zorder=3,
        )
    ticks = sorted(sizes)
    step = max(1, -(-len(ticks) // MOST_TICKS))
    axes.set_xlabel("Size")
    axes.set_ylabel(title)
    axes.xaxis.set_major_locator(FixedLocator(ticks[::-1][::step][::-1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(text(value))))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)


def _draw_limits(axes: Axes, limits: Sequence[tuple[str, float]]) -> None:
    """Over the left, where bandwidths of small sizes leave room."""
    for place, (words, bandwidth) in enumerate(limits):
        axes.axhline(bandwidth, color=LIMIT, linewidth=1.2, linestyle=(0, (6, 3)), zorder=2)
        axes.annotate(
            words,
            xy=(0, bandwidth),
            xycoords=("axes fraction", "data"),
            xytext=(4, -3 if place % 2 else 3),  # of two that are near, on different sides
            textcoords="offset points",
            va="top" if place % 2 else "bottom",
            fontsize=9,
            color=LIMIT,
        )
    if limits:
        low, high = axes.get_ylim()
        axes.set_ylim(low, max(high, 1.6 * max(bandwidth for _, bandwidth in limits)))
