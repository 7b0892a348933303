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
FIRST, LAST = 2, 1  # pieces shown from the start and the end of more


def held(holding: Holding, sign: Signs, width: int = WIDTHS[0]) -> Text:
    """Return the pieces, each in one line or one per row, and no wider than ``width`` if possible.

    A piece of a multi-dimensional tensor keeps its brackets, also if it is cut.
    """
    if holding.undefined or not holding.pieces:
        return Text("undefined" if holding.undefined else "nothing", style=colours.QUIET)
    left_out = _selection(holding)[1]
    texts = _texts(holding, sign, width)
    if holding.joined:  # one bracket opens in the first line and closes in the last
        last = len(texts) - 1
        for index, text in enumerate(texts):
            full = Text(f"[{sign.none}]", text.style) if text.plain == "[]" else text
            body = Text(" ") + full[1:] if index > 0 and full.plain[:1] == "[" else full
            texts[index] = body[:-1] if index < last and body.plain[-1:] == "]" else body
    if left_out:
        texts.insert(FIRST, Text(f"{sign.more} {left_out} more", style=colours.QUIET))
    return Text("\n").join(texts)


def same_layout(holdings: Iterable[Holding], width: int) -> int:
    """Return the width with which all multi-dimensional tensors of a table look alike.

    If one doesn't fit into one line, all have a line per row; if a row doesn't fit, all are cut.
    """
    pieces = [
        piece
        for holding in holdings
        for piece in _selection(holding)[0]
        if isinstance(piece, Piece) and len(piece.shape) > 1 and _is_short(piece)
    ]
    if all(len(_nested(each.values, each.shape, " ")) <= width for each in pieces):
        return width
    rows = [row for each in pieces for row in _nested(each.values, each.shape, "\n").split("\n")]
    longest = max(map(len, rows))
    return longest if longest <= width else 0


def sources(holding: Holding, sign: Signs, width: int = WIDTHS[0]) -> Text:
    """Return each piece's source rank, or ``all`` if it was reduced, in the lines of ``held``."""
    if holding.undefined or not holding.pieces:
        return Text(sign.none, style=colours.QUIET)
    return lines(
        holding,
        sign,
        lambda piece: Text(
            "all" if piece.source is None else f"rank {piece.source}",
            style=colours.of_source(piece.source),
        ),
        width,
    )


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


def lines(
    holding: Holding, sign: Signs, write: Callable[[Piece | ObjectPiece], Text], width: int
) -> Text:
    """Return a text for each piece that ``held`` shows, in the first of its lines."""
    shown, left_out = _selection(holding)
    texts = [
        write(piece) + "\n" * drawn.plain.count("\n")
        for piece, drawn in zip(shown, _texts(holding, sign, width), strict=True)
    ]
    if left_out:
        texts.insert(FIRST, Text(sign.more, style=colours.QUIET))
    return Text("\n").join(texts)


def _texts(holding: Holding, sign: Signs, width: int) -> list[Text]:
    return [_piece(piece, sign, width) for piece in _selection(holding)[0]]


def _selection(holding: Holding) -> tuple[list[Piece | ObjectPiece], int]:
    pieces = list(holding.pieces)
    if not holding.omitted and len(pieces) <= FEW:
        return pieces, 0
    return pieces[:FIRST] + pieces[-LAST:], len(pieces) + holding.omitted - FIRST - LAST


def _piece(piece: Piece | ObjectPiece, sign: Signs, width: int) -> Text:
    """Return a tensor nested like its shape, or its ends if it is too wide; an object as JSON."""
    style = colours.of_source(piece.source)
    if isinstance(piece, ObjectPiece):
        width = max(width, 12)
        body = json.dumps(piece.value, ensure_ascii=False)
        cut = body[: width - len(sign.more)] + sign.more
        return Text(body if len(body) <= width else cut, style)
    if _is_short(piece):
        for gap in (" ", "\n"):  # in one line, or one line per row
            body = _nested(piece.values, piece.shape, gap)
            if max(map(len, body.split("\n"))) <= width or len(piece.values) <= 2:
                return Text(body, style=style)
    last = piece.last_values or piece.values
    depth = len(piece.shape)
    for count in (3, 2, 1):  # elements at each end: the most that fit
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
