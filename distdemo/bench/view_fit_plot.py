"""Measured times and the fitted curves, drawn with matplotlib: a panel a series, log axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from distdemo.bench.fitting import FitReport, FittedSeries
from distdemo.bench.view_fit_words import link_words, title
from distdemo.bench.view_numbers import short_size
from distdemo.view.numbers import duration
from distdemo.view.plot import COLOURS, MARKS, SETTINGS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL = (6.4, 4.2)  # inches
ACROSS = 2  # panels in a row
MOST = 12  # panels


def plot(report: FitReport, kind: str) -> bytes:
    """The picture.

    Args:
        report: with a series at least; beyond ``MOST`` the others are left out.
        kind: ``png``, ``svg`` or ``pdf``.
    """
    shown = report.series[:MOST]
    across = min(ACROSS, len(shown))
    down = math.ceil(len(shown) / across)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).flat
        for axes, series in zip(panels, shown, strict=False):
            _draw(axes, series)
        for axes in list(panels)[len(shown) :]:
            axes.set_axis_off()
        return saved(figure, kind)


def _draw(axes: Axes, series: FittedSeries) -> None:
    """Measured points as marks; what the chosen model says of the same points as a line."""
    model = dict(zip(series.points, series.best.residuals, strict=True))
    for at, n in enumerate(series.worlds):
        points = [point for point in series.points if point.n == n]
        sizes = [point.size for point in points]
        colour = COLOURS[at % len(COLOURS)]
        style: dict[str, Any] = {"color": colour, "marker": MARKS[at % len(MARKS)]}
        times = [point.seconds for point in points]
        axes.plot(sizes, times, linestyle="", label=f"{n} ranks, measured", **style)
        fitted = [point.seconds * (1 + model[point]) for point in points]
        axes.plot(sizes, fitted, color=colour, label=f"{n} ranks, {series.chosen}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("Size")
    axes.set_ylabel("Time")
    axes.set_title(f"{title(series)}\n{link_words(series.best.link)}", fontsize=9)
    axes.legend(frameon=False, fontsize=9)
