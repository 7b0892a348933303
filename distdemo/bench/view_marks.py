"""The further signs that a measurement's views need, and what stands for them in ASCII."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.view.console import ASCII_SIGNS, Signs


@dataclass(frozen=True, slots=True)
class Marks:
    """Signs.

    Attributes:
        half: before half an interval's width.
        unsteady: behind one that is wider than was asked for.
        best: the best of a row.
        named: before what is singled out.
        points: of a plot's series, each told from the others by its form.
        several: points of several series in one place.
        limit: what a limit's line is made of.
        trail: between two points of a series.
        up: the axis that goes up, and with a tick.
        along: the axis that goes along, its corner, and with a tick.
    """

    half: str = "±"
    unsteady: str = "!"
    best: str = "★"
    named: str = "▶"
    points: str = "●○▲△■□◆◇▼▽"
    several: str = "◎"
    limit: str = "╌"
    trail: str = "·"
    up: str = "│┤"
    along: str = "─└┬"


_ASCII = Marks("+-", "!", "*", ">", "ox+*#@%=$v", "&", "-", ".", "|+", "-++")
_SPELLED = str.maketrans(
    {"±": "+-", "…": "...", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "≈": "~", "→": "->", "’": "'"}
)


def marks(sign: Signs) -> Marks:
    """Those that go with these signs."""
    return _ASCII if sign == ASCII_SIGNS else Marks()


def spelled(text: str, sign: Signs) -> str:
    """A sentence of somebody else's with the characters that this terminal has."""
    return text.translate(_SPELLED) if sign == ASCII_SIGNS else text
