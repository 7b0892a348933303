"""Draw plots with matplotlib, in one style, as PNG or SVG files.

Needs no display and no global state: figures are created as objects, without pyplot.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from distdemo.view.foreign import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # don't report the search for fonts

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

PANEL = 5.5, 5.6  # inches
MOST_TICKS = 8  # labels on the x axis


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel.

    Attributes:
        name: Text in the legend.
        points: Pairs of x and y, all above 0, ascending by x.
        hue: Index of its colour and mark.
        look: "dashed" for a model or a limit, "marks" for points without a line.
        band: Lowest and highest y per point.
    """

    name: str
    points: Sequence[tuple[float, float]]
    hue: int
    look: Literal["line", "dashed", "marks"] = "line"
    band: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis: its name, and the text of a value."""

    name: str
    text: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over the same axes."""

    series: Sequence[Line]
    x: Axis
    y: Axis


def lines(panels: Sequence[Panel], title: str, notes: Sequence[str], kind: str) -> bytes:
    """Draw panels side by side, with one legend.

    Args:
        panels: At least one panel.
        title: Title of the picture.
        notes: Lines in small type under the title.
        kind: ``png`` or ``svg``.
    """
    with rc_context(SETTINGS):
        size = PANEL[0] * max(1.6, len(panels)), PANEL[1]
        figure = Figure(figsize=size, layout="constrained")
        handles: dict[str, Any] = {}
        for index, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), index)
            _draw(axes, panel)
            found, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, found, strict=True))
        if handles:
            columns = max(1, min(len(handles), 130 // (max(map(len, handles)) + 8)))
            where: Any = {"loc": "outside lower center", "ncols": columns, "frameon": False}
            figure.legend(list(handles.values()), list(handles), **where)
        entitle(figure, title, "\n".join(notes))
        return saved(figure, kind)


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for each in panel.series:
        xs, ys = [x for x, _ in each.points], [y for _, y in each.points]
        colour, mark = COLOURS[each.hue % len(COLOURS)], MARKS[each.hue % len(MARKS)]
        axes.plot(
            xs,
            ys,
            label=each.name,
            color=colour,
            marker="" if each.look == "dashed" else mark,
            linestyle={"line": "-", "dashed": "--", "marks": ""}[each.look],
        )
        if each.band:
            low, high = zip(*each.band, strict=True)
            axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
    known = sorted({x for each in panel.series for x, _ in each.points})
    step = max(1, -(-len(known) // MOST_TICKS))
    axes.set_xlabel(panel.x.name)
    axes.set_ylabel(panel.y.name)
    axes.xaxis.set_major_locator(FixedLocator(known[::-1][::step][::-1]))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(panel.x.text(value))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(panel.y.text(value))))


LARGE, SMALL = 13, 8  # font sizes of the title and the text under it, in points
WIDEST, SMALLEST = 90, 170  # characters per line of each
EDGE = 0.15  # inches between the title and the picture's edges


def entitle(figure: Figure, title: str, small: str) -> None:
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
    left = EDGE / width
    figure.text(
        left, 1 - EDGE / height, fitted(title, WIDEST), va="top", fontsize=LARGE, fontweight="bold"
    )
    figure.text(
        left,
        1 - below / height,
        "\n".join(fitted(line, SMALLEST) for line in lines),
        va="top",
        fontsize=SMALL,
        color="#555555",
    )
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, 0, 1, 1 - whole / height), w_pad=0.1, h_pad=0.06)  # type: ignore[call-arg]  # valid for constrained layout


def fitted(text: str, most: int) -> str:
    """Return the text, shortened to at most this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def saved(figure: Figure, kind: str) -> bytes:
    """Return the figure as the bytes of a file, without the date."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    for text in figure.findobj(Text):
        if printable(text.get_text()) != text.get_text():
            text.set_text(printable(text.get_text()))
    memory = io.BytesIO()
    figure.savefig(memory, format=kind, metadata=undated.get(kind))
    return memory.getvalue()


def short(text: str) -> str:
    """Drop trailing zeros for an axis label: ``1.00 ms`` becomes ``1 ms``."""
    number, _, unit = text.partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}"
