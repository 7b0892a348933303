"""What a rank holds, as the lines of a table's cell: the pieces, and where each came from."""

from __future__ import annotations

from rich.text import Text

from distdemo.demo.holdings import Holding, Piece, Thing
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.numbers import ROOMS, piece_text, thing_text

FEW = 4  # pieces up to which all are shown
FIRST, LAST = 2, 1  # else these many from each end


def cell(holding: Holding, signs: Signs, room: int = ROOMS[0]) -> Text:
    """The pieces, a line each, none wider than ``room`` if that can be."""
    if holding.undefined:
        return Text("undefined", style=colours.QUIET)
    if not holding.pieces:
        return Text("nothing", style=colours.QUIET)
    shown, left_out = _selection(holding)
    lines = [_line(piece, signs, room) for piece in shown]
    if holding.joined:
        lines = _as_one(lines)
    if left_out:
        more = Text(f"{signs.more} {left_out} more", style=colours.QUIET)
        lines.insert(FIRST, more)
    return Text("\n").join(lines)


def _line(piece: Piece | Thing, signs: Signs, room: int) -> Text:
    style = colours.of_source(piece.source)
    if isinstance(piece, Thing):
        return thing_text(piece, signs, style, room)
    return piece_text(piece, signs, style, room)


def _as_one(lines: list[Text]) -> list[Text]:
    """The pieces of a single tensor: a bracket that opens in the first line, closes in the last."""
    last = len(lines) - 1
    opened = (
        line if place == 0 else Text(" ") + line[1:] if line.plain.startswith("[") else line
        for place, line in enumerate(lines)
    )
    return [
        line[:-1] if place < last and line.plain.endswith("]") else line
        for place, line in enumerate(opened)
    ]


def sources(holding: Holding, signs: Signs) -> Text:
    """The rank that each piece came from, ``all`` if it was reduced: lines as in ``cell``."""
    if holding.undefined or not holding.pieces:
        return Text(signs.none, style=colours.QUIET)
    shown, left_out = _selection(holding)
    lines = [
        Text("all" if p.source is None else f"rank {p.source}", style=colours.of_source(p.source))
        for p in shown
    ]
    if left_out:
        lines.insert(FIRST, Text(signs.more, style=colours.QUIET))
    return Text("\n").join(lines)


def sizes(holding: Holding, signs: Signs) -> Text:
    """The bytes that each object pickled to: lines as in ``cell``."""
    shown, left_out = _selection(holding)
    lines = [f"{piece.size} B" if isinstance(piece, Thing) else "" for piece in shown]
    if left_out:
        lines.insert(FIRST, signs.more)
    return Text("\n".join(lines), style=colours.QUIET)


def _selection(holding: Holding) -> tuple[list[Piece | Thing], int]:
    pieces = list(holding.pieces)
    if not holding.omitted and len(pieces) <= FEW:
        return pieces, 0
    left_out = len(pieces) + holding.omitted - FIRST - LAST
    return pieces[:FIRST] + pieces[-LAST:], left_out
