"""What a rank holds, as the lines of a table's cell: the pieces, and where each came from."""

from __future__ import annotations

from rich.text import Text

from distdemo.model import Holding, Piece
from distdemo.render import colours
from distdemo.render.console import Signs
from distdemo.render.numbers import piece_text

FEW = 4  # pieces up to which all are shown
FIRST, LAST = 2, 1  # else these many from each end


def cell(holding: Holding, signs: Signs) -> Text:
    """The pieces, a line each."""
    if holding.undefined:
        return Text("undefined", style=colours.QUIET)
    if not holding.pieces:
        return Text("nothing", style=colours.QUIET)
    shown, left_out = _selection(holding)
    lines = [piece_text(p, signs, colours.of_source(p.source)) for p in shown]
    if left_out:
        more = Text(f"{signs.more} {left_out} more", style=colours.QUIET)
        lines.insert(FIRST, more)
    return Text("\n").join(lines)


def sources(holding: Holding, reduced: str, signs: Signs) -> Text:
    """The rank that each piece came from, a line each, beside ``cell``.

    Args:
        holding: what the rank holds afterwards.
        reduced: what to say of a piece that was reduced over several ranks.
        signs: of the console.
    """
    if holding.undefined or not holding.pieces:
        return Text(signs.none, style=colours.QUIET)
    shown, left_out = _selection(holding)
    lines = [
        Text(reduced if p.source is None else f"rank {p.source}", style=colours.of_source(p.source))
        for p in shown
    ]
    if left_out:
        lines.insert(FIRST, Text(signs.more, style=colours.QUIET))
    return Text("\n").join(lines)


def _selection(holding: Holding) -> tuple[list[Piece], int]:
    pieces = list(holding.pieces)
    if not holding.omitted and len(pieces) <= FEW:
        return pieces, 0
    left_out = len(pieces) + holding.omitted - FIRST - LAST
    return pieces[:FIRST] + pieces[-LAST:], left_out
