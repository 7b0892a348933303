"""Algorithms side by side, drawn with matplotlib: time, or bytes, against size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
)

from distdemo.trace.records import Candidate, ComparedSize, Comparison
from distdemo.trace.texts import link_text
from distdemo.trace.view_compare import below, name_of, title
from distdemo.view.format import duration, short_size
from distdemo.view.plot import COLOURS, MARKS, SETTINGS, entitle, saved, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 10.0, 6.0  # inches
ROOM = 118  # characters of the legend in a line
OWN = "#1a1a1a"
QUIET = "#555555"
HUES = tuple(colour for colour in COLOURS if colour != "#000000")
DASHES: tuple[float, Sequence[float]] = (0, (4, 2))
BETWEEN = 24  # points of a curve from one size to the next
MOST_TICKS = 8  # sizes that are named
EDGE = 2.0  # a crossover nearer to the largest size than this factor is labelled at its left
Pick = Callable[[Candidate], float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """What goes up the axis.

    Attributes:
        title: of the axis.
        measured: of a row; None: it was not run.
        expected: by the model, or counted; None: nobody knows.
        expected_is: for the legend.
        text: a value as people read it.
    """

    title: str
    measured: Pick
    expected: Pick
    expected_is: str
    text: Callable[[float], str]
    base: int = 10


TIME = Measure(
    "Time",
    lambda row: row.timing.median_s if row.timing is not None else None,
    lambda row: row.predicted_s,
    "α–β model",
    duration,
)
BYTES = Measure(
    "Bytes through the busiest rank",
    lambda _: None,
    lambda row: None if row.counts is None else row.counts.busiest_bytes,
    "counted",
    short_size,
    base=2,
)


def plot(report: Comparison, kind: str) -> bytes:
    """The picture.

    Args:
        report: of no size: empty axes.
        kind: ``png`` or ``svg``.
    """
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        rows = [row for size in report.sizes for row in size.candidates]
        # Times; where nobody knows any, as in a simulation without α and β, bytes.
        known = any(row.seconds is not None for row in rows)
        if report.sizes:
            handles = _lines(axes, report, TIME if known else BYTES)
            names = [str(each.get_label()) for each in handles]
            most = max(1, min(len(names), ROOM // (max(map(len, names)) + 8)))
            columns = -(-len(names) // -(-len(names) // most))
            figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
        entitle(figure, _title(report), _small(report))
        return saved(figure, kind)


def _title(report: Comparison) -> str:
    """What, on how many ranks, where; at one size that, too."""
    if not report.sizes:
        return "nothing was measured"
    parts = title(report.sizes[0], report).split(" · ")
    return " · ".join(parts if len(report.sizes) == 1 else [parts[0], *parts[2:]])


def _small(report: Comparison) -> str:
    """α and β with their source; who is fastest by the model; with what it was run."""
    told = ["Nothing was run: counted on paper."] if report.simulated else []
    told += [] if report.link is None else [link_text(report.link)]
    told += [text for text in below(report) if text.startswith("Fastest")]
    told.append(" · ".join(f"{name} {version}" for name, version in report.versions.items()))
    return "\n".join(told)


def _looks(report: Comparison) -> dict[str, tuple[str, str]]:
    """Colour and mark of each row by its name, at every size; the backend's own is black."""
    found: dict[str, tuple[str, str]] = {}
    for size in report.sizes:
        for row in size.candidates:
            place = len(found) - any(look[0] == OWN for look in found.values())
            look = (HUES[place % len(HUES)], MARKS[place % len(MARKS)])
            found.setdefault(name_of(row, report), (OWN, MARKS[-1]) if row.own else look)
    return found


# ------------------------------------------------------------------------------------------- lines


def _lines(axes: Axes, report: Comparison, shown: Measure) -> list[Line2D]:
    """A line an algorithm, what is expected dashed, and where the model's lines cross."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=shown.base)
    legend: list[Line2D] = []
    ran = False
    for name, (colour, marker) in _looks(report).items():
        measured = _points(report, name, shown.measured)
        expected = _points(report, name, shown.expected)
        axes.plot(*_curve(expected), color=colour, linestyle=DASHES, linewidth=1.2, zorder=2)
        for size in report.sizes if measured else ():
            row = _row(size, name, report)
            if row is not None and row.timing is not None:
                ends = (row.timing.low_s, row.timing.high_s)
                axes.vlines(size.traffic.payload_bytes, *ends, color=colour, alpha=0.6, zorder=2)
        style = "-" if measured else ""
        xs, ys = zip(*(measured or expected), strict=True) if measured or expected else ((), ())
        axes.plot(xs, ys, color=colour, marker=marker, linestyle=style, linewidth=1.8, zorder=3)
        line = "-" if measured else DASHES
        legend.append(Line2D([], [], color=colour, label=name, linestyle=line, marker=marker))  # type: ignore[arg-type]  # matplotlib lists every style in its type
        ran |= bool(measured)
    if ran:
        legend.append(Line2D([], [], color=QUIET, linestyle=DASHES, label=shown.expected_is))
    if _crossovers(axes, report):
        words = "equally fast, by the model"
        legend.append(Line2D([], [], color=QUIET, linestyle=":", label=words))
    _frame(axes, report, shown)
    return legend


def _row(size: ComparedSize, name: str, report: Comparison) -> Candidate | None:
    return next((row for row in size.candidates if name_of(row, report) == name), None)


def _points(report: Comparison, name: str, pick: Pick) -> list[tuple[float, float]]:
    """Sizes and values; what is unknown, or nothing on an axis of logarithms, is left out."""
    found = ((size.traffic.payload_bytes, _row(size, name, report)) for size in report.sizes)
    known = ((size, None if row is None else pick(row)) for size, row in found)
    return [(size, value) for size, value in known if value and size > 0]


def _curve(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """With points in between: what grows evenly with the size is no line on these axes."""
    found = list(points[:1])
    for (size, value), (larger, more) in pairwise(points):
        for step in range(1, BETWEEN + 1):
            at = size * (larger / size) ** (step / BETWEEN)
            found.append((at, value + (more - value) * (at - size) / (larger - size)))
    return [size for size, _ in found], [value for _, value in found]


def _crossovers(axes: Axes, report: Comparison) -> bool:
    """An upright line each, with its size at the top; whether there are any."""
    sizes = [size.traffic.payload_bytes for size in report.sizes]
    found = [each for each in report.crossovers if min(sizes) <= each.size_bytes <= max(sizes)]
    for place, each in enumerate(found):
        last = each.size_bytes > max(sizes) / EDGE
        axes.axvline(each.size_bytes, color=QUIET, linestyle=":", linewidth=1.2, zorder=1)
        axes.annotate(
            short_size(each.size_bytes),
            xy=(each.size_bytes, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if last else 3, -15 if place % 2 else -3),
            textcoords="offset points",
            va="top",
            ha="right" if last else "left",
            fontsize=8,
            color=QUIET,
        )
    return bool(found)


def _frame(axes: Axes, report: Comparison, shown: Measure) -> None:
    """Names and ticks of both axes, and room for the crossovers' words over the lines."""
    sizes = sorted({size.traffic.payload_bytes for size in report.sizes})
    step = max(1, -(-len(sizes) // MOST_TICKS))
    axes.set_xlabel("Size")
    axes.set_ylabel(shown.title)
    axes.xaxis.set_major_locator(FixedLocator(sorted(sizes[::-1][::step])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_size(value)))
    axes.xaxis.set_minor_locator(FixedLocator(sizes))
    axes.yaxis.set_major_locator(LogLocator(shown.base, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(shown.text(value))))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.06)
