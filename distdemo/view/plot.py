"""How all our plots look, drawn with matplotlib, and how one becomes a file.

Needs no display and no global state: figures are made as objects, without pyplot.
"""

from __future__ import annotations

import io
import logging
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from distdemo.view.foreign import printable

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # that it looks for fonts is no news

SETTINGS: Any = {  # matplotlib lists every name in its type
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "savefig.dpi": 160,
    "text.parse_math": False,  # a name with dollar signs is no formula
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "distdemo",  # the same curves make the same file
}
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000", "#999999")
"""Told apart by the colour-blind too (Okabe and Ito); their yellow is too pale for a line."""
MARKS = "osD^vPX*<>"
"""Forms of a line's marks, for readers who can't tell the colours apart."""

LINES = ("-", "--", ":", "-.")


LARGE, SMALL = 13, 8  # points of a title, and of the text under it
WIDEST, SMALLEST = 90, 170  # characters of each that there is room for
EDGE = 0.15  # inches between the title and the picture's edges


def entitle(figure: Figure, title: str, small: str) -> None:
    """What is shown, at the left, and in small type under it where and with what.

    Args:
        figure: whose layout is constrained: it leaves room for this.
        title: in one line.
        small: the lines under it.
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
        engine.set(rect=(0, 0, 1, 1 - whole / height), w_pad=0.1, h_pad=0.06)  # type: ignore[call-arg]  # of the constrained one


def fitted(text: str, most: int) -> str:
    """So many characters at most."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def saved(figure: Figure, kind: str) -> bytes:
    """As bytes, so that a file is written whole or not at all; without the date."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    for text in figure.findobj(Text):
        if printable(text.get_text()) != text.get_text():
            text.set_text(printable(text.get_text()))
    memory = io.BytesIO()
    figure.savefig(memory, format=kind, metadata=undated.get(kind))
    return memory.getvalue()


def short(text: str) -> str:
    """A power of ten without its decimals, for an axis: ``1.00 ms`` is ``1 ms``."""
    number, _, unit = text.partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}"
