"""A colour for every source rank, the same in every table. Nothing is told by colour alone."""

from __future__ import annotations

_COLOURS = (
    "cyan",
    "yellow",
    "magenta",
    "green",
    "bright_blue",
    "bright_red",
    "bright_cyan",
    "bright_yellow",
    "bright_magenta",
    "bright_green",
    "blue",
    "red",
)
REDUCED = "bold"
QUIET = "dim"
RIGHT = "green"
WRONG = "bold red"


def of_rank(rank: int) -> str:
    """The style of data that came from this rank."""
    return _COLOURS[rank % len(_COLOURS)]


def of_source(source: int | None) -> str:
    """The style of data from this rank, or (None) reduced over several."""
    return REDUCED if source is None else of_rank(source)
