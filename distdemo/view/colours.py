"""A colour per source rank, the same in all tables. No information is in the colour alone."""

from __future__ import annotations

_HUES = ("cyan", "yellow", "magenta", "green", "blue", "red")
_COLOURS = (*_HUES[:4], "bright_blue", "bright_red", *(f"bright_{hue}" for hue in _HUES[:4]))
_COLOURS += _HUES[4:]
REDUCED = "bold"
QUIET = "dim"
RIGHT = "green"
WRONG = "bold red"
UNSURE = "yellow"


def of_rank(rank: int) -> str:
    """Return the style of data from this rank."""
    return _COLOURS[rank % len(_COLOURS)]


def of_source(source: int | None) -> str:
    """Return the style of data from this rank, or of reduced data for None."""
    return REDUCED if source is None else of_rank(source)
