"""Plot of compared algorithms, drawn with matplotlib: time or bytes against size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from distdemo.trace.compare.records import Candidate, Comparison
from distdemo.trace.compare.view import below, name_of, title
from distdemo.trace.texts import link_text
from distdemo.view.format import duration, short_size
from distdemo.view.plot import COLOURS, MARKS, SETTINGS, entitle, saved, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 10.0, 6.0  # inches
OWN = "#1a1a1a"  # colour of the backend's own call
QUIET = "#555555"
HUES = tuple(colour for colour in COLOURS if colour != "#000000")
MOST_TICKS = 8  # sizes labelled on the axis
LEGEND_COLUMNS = 4


def draw(report: Comparison, kind: str) -> bytes:
    """Return the image file.

    Args:
        report: Comparison to draw. Without sizes, the axes are empty.
        kind: ``png`` or ``svg``.
    """
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        headline = "nothing was measured"
        if report.sizes:
            _lines(axes, report)
            figure.legend(loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False)
            parts = title(report.sizes[0], report).split(" · ")
            headline = " · ".join(parts if len(report.sizes) == 1 else [parts[0], *parts[2:]])
        small = ["Simulation: nothing was run."] if report.simulated else []
        small += [] if report.link is None else [link_text(report.link)]
        small += [text for text in below(report) if text.startswith("Fastest")]
        small.append(" · ".join(f"{name} {version}" for name, version in report.versions.items()))
        entitle(figure, headline, "\n".join(small))
        return saved(figure, kind)


def _lines(axes: Axes, report: Comparison) -> None:
    """Draw one line per algorithm, its prediction dashed, and the model's crossovers.

    The lines are times, or bytes if no time is known, as in a simulation without α and β.
    """
    rows: dict[str, list[tuple[int, Candidate]]] = {}
    for each in report.sizes:
        for row in each.candidates:
            rows.setdefault(name_of(row, report), []).append((each.traffic.payload_bytes, row))
    timed = any(row.seconds is not None for found in rows.values() for _, row in found)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10 if timed else 2)
    hues = iter(HUES * len(rows))
    marks = iter(MARKS * len(rows))
    for name, found in rows.items():
        colour = OWN if found[0][1].own else next(hues)
        marker = next(marks)
        expected = [(size, _expected(row, timed=timed)) for size, row in found]
        points = [(size, value) for size, value in expected if value and size]
        ran = [(size, row.timing) for size, row in found if row.timing is not None and size]
        if points:
            xs, values = zip(*points, strict=True)
            curve = np.geomspace(xs[0], xs[-1], 100)  # α + S·β isn't straight on log-log axes
            axes.plot(curve, np.interp(curve, xs, values), "--", color=colour, linewidth=1.2)
            if not ran:
                axes.plot(xs, values, linestyle="", marker=marker, color=colour)
        for size, timing in ran:
            axes.vlines(size, timing.low_s, timing.high_s, color=colour, alpha=0.6)
        times = [timing.median_s for _, timing in ran]
        axes.plot([size for size, _ in ran], times, color=colour, marker=marker, label=name)
    if timed and not report.simulated:
        axes.plot([], [], color=QUIET, linestyle="--", label="α–β model")
    sizes = sorted({size.traffic.payload_bytes for size in report.sizes})
    label = "equally fast, by the model"
    for change in report.crossovers:
        if sizes[0] <= change.size_bytes <= sizes[-1]:
            axes.axvline(change.size_bytes, color=QUIET, linestyle=":", linewidth=1.2, label=label)
            label = "_"  # once in the legend
    text = duration if timed else short_size
    axes.set_xlabel("Size")
    axes.set_ylabel("Time" if timed else "Bytes through the busiest rank")
    step = -(-len(sizes) // MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(sorted(sizes[::-1][::step])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
    axes.yaxis.set_major_locator(LogLocator(10 if timed else 2, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(text(value))))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())


def _expected(row: Candidate, *, timed: bool) -> float | None:
    """Return the predicted seconds, or the counted bytes of the busiest rank."""
    if timed:
        return row.predicted_s
    return None if row.counts is None else row.counts.busiest_bytes
