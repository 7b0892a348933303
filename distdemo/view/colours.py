"""The palette of all views: terminal, pictures, trace page, notebook and the docs' site.

Colours of ranks and results are legible on black and on white, with a contrast of at least 3.8, and
belong to xterm's 256 colours, which terminals don't redefine. Any two ranks' colours differ by at
least 20 (CIE76), those of neighbours by 30. No rank has the colour of a right or wrong result, not
even on a terminal of 16 colours. No information is in the colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence

RANKS = (
    "#005fff",  # blue
    "#af5f00",  # orange
    "#d70087",  # pink
    "#0087af",  # cyan
    "#af00ff",  # purple
    "#875faf",  # mauve
    "#878700",  # olive
    "#d700d7",  # magenta
)
"""Colour of each source rank, the same in all tables and pictures; more ranks start over."""
GOOD, BAD, DOUBTFUL = "#008700", "#d70000", "#af5f00"
INK, PALE_INK, PAPER = "#1a1c20", "#555a63", "#ffffff"
"""Text, notes and background where the background is ours: pictures, the page and the site."""
LINK, LINK_HOVER = "#0a58a8", "#063d75"
"""Links and controls of the page and the site."""

REDUCED = "bold"
QUIET = "dim"
RIGHT = GOOD
WRONG = f"bold {BAD}"
UNSURE = DOUBTFUL
KEYWORD, LITERAL = f"bold {RANKS[3]}", RANKS[1]  # of code, in which nothing is of a rank


def of_rank(rank: int) -> str:
    """Return the style of data from this rank."""
    return RANKS[rank % len(RANKS)]


def of_sources(sources: Sequence[int]) -> str:
    """Return the style of data from this rank, or of data that several ranks contributed to."""
    return of_rank(sources[0]) if len(sources) == 1 else REDUCED
