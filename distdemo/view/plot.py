"""Draw lines with matplotlib, in one style, as PNG or SVG files.

Features supply data; only this module draws. It needs no display and no global state: figures are
created as objects, without pyplot. matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from distdemo.view.foreign import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: Any = {  # matplotlib lists every name in its type
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "savefig.dpi": 160,
    "text.parse_math": False,  # dollar signs in names don't mark formulas
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "distdemo",  # make files reproducible
}
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000", "#999999")
"""Colour-blind safe palette of Okabe and Ito, without its yellow, which is too pale for lines."""
MARKS = "osD^vPX*<>"
"""Marker shapes, for readers who can't distinguish the colours."""
STYLES = {"line": "-", "dashed": "--", "dotted": ":", "marks": ""}

PANEL = 5.5, 5.6  # inches
MOST_TICKS = 8  # labels on the x axis
MOST_MARKS = 20  # per line
LARGE, SMALL = 13, 8  # font sizes of the title and the notes, in points
WIDEST, SMALLEST = 90, 170  # characters per line of each
EDGE = 0.15  # inches between the title and the picture's edges


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A line of a panel.

    Attributes:
        name: Text in the legend, where each name is once; none if empty.
        points: Pairs of x and y, ascending by x; all above 0 on logarithmic axes.
        hue: Index of its colour and mark.
        style: "dashed" for a model or a limit, "dotted" for a border, "marks" for points without a
            line.
        band: Lowest and highest y per point.
        width: Width in points; lines that may coincide differ in it.
    """

    name: str
    points: Sequence[tuple[float, float]]
    hue: int
    style: Literal["line", "dashed", "dotted", "marks"] = "line"
    band: Sequence[tuple[float, float]] = ()
    width: float = 1.5


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis.

    Attributes:
        name: Quantity on the axis.
        text: Function that returns the text of a value.
        log: Base of a logarithmic axis; 0 for a linear one.
    """

    name: str
    text: Callable[[float], str]
    log: int = 10


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over the same axes."""

    series: Sequence[PlotLine]
    x: Axis
    y: Axis


def lines(
    panels: Sequence[Panel], title: str, notes: Sequence[str], file: Path | str | None
) -> bytes:
    """Return a picture of panels side by side, with one legend.

    Args:
        panels: At least one panel.
        title: Title of the picture.
        notes: Lines in small type under the title.
        file: File that it will be written to, ``png`` or ``svg``; only the suffix matters. None is
            ``png``.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # don't report the search for fonts
    with rc_context(SETTINGS):
        size = PANEL[0] * max(1.6, len(panels)), PANEL[1]
        figure = Figure(figsize=size, layout="constrained")
        handles: dict[str, Any] = {}
        for index, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), index)
            _draw(axes, panel)
            entries, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, entries, strict=True))
        if handles:
            columns = max(1, min(len(handles), 130 // (max(map(len, handles)) + 8)))
            where: Any = {"loc": "outside lower center", "ncols": columns, "frameon": False}
            figure.legend(list(handles.values()), list(handles), **where)
        add_title(figure, title, "\n".join(notes))
        return to_bytes(figure, str(file or "png")[-3:].lower())


def _draw(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )

    for axis, scaled in ((panel.x, axes.set_xscale), (panel.y, axes.set_yscale)):
        if axis.log:
            scaled("log", base=axis.log)
    for line in panel.series:
        xs = [x for x, _ in line.points]
        ys = [y for _, y in line.points]
        colour = COLOURS[line.hue % len(COLOURS)]
        mark = MARKS[line.hue % len(MARKS)]
        axes.plot(
            xs,
            ys,
            label=line.name or "_",
            color=colour,
            linestyle=STYLES[line.style],
            linewidth=line.width,
            marker=mark if line.style in ("line", "marks") else "",
            markersize=4.5 + line.width,
            markevery=-(-len(xs) // MOST_MARKS) or 1,
        )
        if line.band:
            low, high = zip(*line.band, strict=True)
            axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel(panel.x.name)
    axes.set_ylabel(panel.y.name)
    if panel.x.log:
        marked = [line for line in panel.series if line.style in ("line", "marks")] or panel.series
        known = sorted({x for line in marked for x, _ in line.points})
        step = max(1, -(-len(known) // MOST_TICKS))
        axes.xaxis.set_major_locator(FixedLocator(known[::-1][::step][::-1]))
        axes.xaxis.set_minor_locator(FixedLocator([]))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if panel.y.log:
        axes.yaxis.set_major_locator(LogLocator(panel.y.log, numticks=12))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(panel.x.text(value))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(panel.y.text(value))))


def add_title(figure: Figure, title: str, small: str) -> None:
    """Add a title, at the left, and lines in small type under it.

    Args:
        figure: Figure with constrained layout, which leaves space for the title.
        title: One line.
        small: Lines under it.
    """
    lines = small.split("\n")
    width, height = figure.get_size_inches()
    below = EDGE + LARGE * 1.6 / 72
    whole = below + len(lines) * SMALL * 1.5 / 72
    notes = "\n".join(shortened(line, SMALLEST) for line in lines)
    bold: Any = {"va": "top", "fontsize": LARGE, "fontweight": "bold"}
    figure.text(EDGE / width, 1 - EDGE / height, shortened(title, WIDEST), **bold)
    grey: Any = {"va": "top", "fontsize": SMALL, "color": "#555555"}
    figure.text(EDGE / width, 1 - below / height, notes, **grey)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, 0, 1, 1 - whole / height), w_pad=0.1, h_pad=0.06)  # type: ignore[call-arg]  # valid for constrained layout


def shortened(text: str, most: int) -> str:
    """Return the text, shortened to at most this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def to_bytes(figure: Figure, kind: str) -> bytes:
    """Return the figure as the bytes of a file, without the date."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if printable(text.get_text()) != text.get_text():
            text.set_text(printable(text.get_text()))
    memory = io.BytesIO()
    figure.savefig(memory, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return memory.getvalue()


def short(text: str) -> str:
    """Drop trailing zeros of a number with a unit: ``1.00 ms`` becomes ``1 ms``."""
    number, _, unit = text.partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}" if unit else text
