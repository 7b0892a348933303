"""Cells of the tables and pictures: what a rank holds, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from rich.text import Text

from distdemo.demo.records import Holding, ObjectPiece, Piece
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import Number
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.format import decimal_size, number
from distdemo.view.tables import WIDTHS

CUT = 17  # width of a tensor that is shown by its ends
SHORT = 16  # largest number of elements that is shown whole
FEW = 4  # largest number of pieces of which all are shown
FIRST = 2  # pieces shown from the start of more
LAST = 1  # from the end


def data_cell(holding: Holding, sign: Signs, width: int = WIDTHS[0]) -> Text:
    """Return the pieces, in one line or one per row, and no wider than ``width`` if possible.

    A piece of a multi-dimensional tensor keeps its brackets, also if it is cut.
    """
    if holding.undefined or not holding.pieces:
        return Text("undefined" if holding.undefined else "nothing", style=colours.QUIET)
    texts = [text for _, text in _entries(holding, sign, width)]
    if holding.joined:
        texts = _in_one_bracket(texts, sign)
    return Text("\n").join(texts)


def _in_one_bracket(texts: list[Text], sign: Signs) -> list[Text]:
    """Return the lines of one tensor: a bracket opens in the first and closes in the last."""
    joined = []
    for index, text in enumerate(texts):
        line = Text(f"[{sign.none}]", text.style) if text.plain == "[]" else text
        if index > 0 and line.plain.startswith("["):
            line = Text(" ") + line[1:]
        if index < len(texts) - 1 and line.plain.endswith("]"):
            line = line[:-1]
        joined.append(line)
    return joined


def same_layout(holdings: Iterable[Holding], width: int) -> int:
    """Return the width with which all multi-dimensional tensors of a table look alike.

    If one doesn't fit into one line, all have a line per row; if a row doesn't fit, all are cut.
    """
    pieces = [
        piece
        for holding in holdings
        for piece in _shown(holding)
        if isinstance(piece, Piece) and len(piece.shape) > 1 and _is_short(piece)
    ]
    if all(len(_nested(piece.values, piece.shape, " ")) <= width for piece in pieces):
        return width
    drawn = [_nested(piece.values, piece.shape, "\n") for piece in pieces]
    longest = max(len(row) for text in drawn for row in text.split("\n"))
    return longest if longest <= width else 0


def source_cell(holding: Holding, sign: Signs, width: int = WIDTHS[0]) -> Text:
    """Return the pieces' source ranks, or ``all`` if it was reduced, next to ``data_cell``."""
    if holding.undefined or not holding.pieces:
        return Text(sign.none, style=colours.QUIET)

    def source(piece: Piece | ObjectPiece) -> Text:
        name = "all" if piece.source is None else f"rank {piece.source}"
        return Text(name, style=colours.of_source(piece.source))

    return cell_beside(holding, sign, width, source)


def cell_beside(
    holding: Holding, sign: Signs, width: int, describe: Callable[[Piece | ObjectPiece], Text]
) -> Text:
    """Return a text for every piece that ``data_cell`` shows, in the first of its lines."""
    texts = []
    for piece, drawn in _entries(holding, sign, width):
        if piece is None:
            texts.append(Text(sign.more, style=colours.QUIET))
        else:
            texts.append(describe(piece) + "\n" * drawn.plain.count("\n"))
    return Text("\n").join(texts)


def moved(traffic: Traffic) -> str:
    """Return the least bytes that a rank has to move: ``2(n−1)/n × S = 24 B, sent by ...``."""
    size = decimal_size(traffic.payload_bytes)
    if traffic.busbw_formula == "1":
        return f"{size}, {traffic.payload_is}, {traffic.moved_by}"
    least = decimal_size(traffic.payload_bytes * traffic.busbw_factor)
    return (
        f"at least {traffic.busbw_formula} × S = {least}, {traffic.moved_by}; "
        f"S = {size}, {traffic.payload_is}"
    )


def _shown(holding: Holding) -> list[Piece | ObjectPiece]:
    """Return the pieces to show: all of a few, else the first and the last ones."""
    pieces = list(holding.pieces)
    if not holding.omitted and len(pieces) <= FEW:
        return pieces
    return pieces[:FIRST] + pieces[-LAST:]


def _entries(
    holding: Holding, sign: Signs, width: int
) -> list[tuple[Piece | ObjectPiece | None, Text]]:
    """Return the pieces to show with their texts, and without a piece the number left out."""
    shown = _shown(holding)
    entries: list[tuple[Piece | ObjectPiece | None, Text]]
    entries = [(piece, _piece(piece, sign, width)) for piece in shown]
    left_out = len(holding.pieces) + holding.omitted - len(shown)
    if left_out:
        entries.insert(FIRST, (None, Text(f"{sign.more} {left_out} more", style=colours.QUIET)))
    return entries


def _piece(piece: Piece | ObjectPiece, sign: Signs, width: int) -> Text:
    """Return a tensor nested like its shape, or its ends if it is too wide; an object as JSON."""
    style = colours.of_source(piece.source)
    if isinstance(piece, ObjectPiece):
        body = json.dumps(piece.value, ensure_ascii=False)
        room = max(width, 12)
        if len(body) > room:
            body = body[: room - len(sign.more)] + sign.more
        return Text(body, style)
    if _is_short(piece):
        for gap in (" ", "\n"):  # in one line, or one line per row
            body = _nested(piece.values, piece.shape, gap)
            if max(map(len, body.split("\n"))) <= width or len(piece.values) <= 2:
                return Text(body, style=style)
    last = piece.last_values or piece.values
    depth = len(piece.shape)
    for count in (3, 2, 1):  # elements at either end: the most that fit
        ends = [*map(number, piece.values[:count]), sign.more, *map(number, last[-count:])]
        body = f"{'[' * depth}{' '.join(ends)}{']' * depth}"
        if len(body) <= min(width, CUT):
            break
    whole = _nested(piece.values, piece.shape, " ") if _is_short(piece) else ""
    if 0 < len(whole) <= len(body):
        body = whole
    return Text(body, style=style)


def _is_short(piece: Piece) -> bool:
    return not piece.last_values and len(piece.values) <= SHORT


def _nested(values: Sequence[Number], shape: tuple[int, ...], gap: str, depth: int = 1) -> str:
    """Return nested brackets, with ``gap`` between rows; a new line is indented by ``depth``."""
    if not shape:
        return number(values[0]) if values else "[]"
    if len(shape) == 1:
        return f"[{' '.join(map(number, values))}]"
    step = len(values) // shape[0] if shape[0] else 0
    rows = (
        _nested(values[at * step : (at + 1) * step], shape[1:], gap, depth + 1)
        for at in range(shape[0])
    )
    return f"[{(gap + ' ' * depth * (gap != ' ')).join(rows)}]"
