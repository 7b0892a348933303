"""Cells of the tables and pictures: what a rank holds, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from distdemo.demo.records import Holding, Piece
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.format import number
from distdemo.view.tables import WIDTHS

CUT = 17  # width of a tensor that is shown by its ends
SHORT = 16  # largest number of elements that is shown whole
FEW = 4  # largest number of pieces of which all are shown
FIRST = 2  # pieces shown from the start of more
LAST = 1  # from the end


class DataCells(NamedTuple):
    """The cells of a rank's data, side by side.

    Attributes:
        data: Pieces, in one line or one line per row.
        source: Source ranks of the pieces, ``all`` for a reduced one.
        pickle: Sizes of the objects' pickles.
    """

    data: Text
    source: Text
    pickle: Text


def data_cells(holding: Holding, sign: Signs, width: int = WIDTHS[0]) -> DataCells:
    """Return the cells of this data, the pieces no wider than ``width`` if possible.

    A piece of a multi-dimensional tensor keeps its brackets, also if it is cut.
    """
    if holding.undefined or not holding.pieces:
        none = Text(sign.none, colours.QUIET)
        name = "undefined" if holding.undefined else "nothing"
        return DataCells(Text(name, colours.QUIET), none, none)
    pieces = _shown(holding)
    texts = [_piece(piece, sign, width) for piece in pieces]
    sources = []
    pickles = []
    for piece, text in zip(pieces, texts, strict=True):
        source = "all" if piece.source is None else f"rank {piece.source}"
        size = f"{piece.pickled_bytes} B" if piece.is_object else ""
        below = "\n" * text.plain.count("\n")
        sources.append(Text(source, colours.of_source(piece.source)) + below)
        pickles.append(Text(size + below, colours.QUIET))
    left_out = len(holding.pieces) + holding.omitted - len(pieces)
    if left_out:
        more = Text(sign.more, colours.QUIET)
        texts.insert(FIRST, more + f" {left_out} more")
        sources.insert(FIRST, more)
        pickles.insert(FIRST, more)
    if holding.joined:
        texts = _in_one_bracket(texts, sign)
    return DataCells(*(Text("\n").join(lines) for lines in (texts, sources, pickles)))


def same_layout(holdings: Iterable[Holding], width: int) -> int:
    """Return the width with which all multi-dimensional tensors of a table look alike.

    If one doesn't fit into one line, all have a line per row; if a row doesn't fit, all are cut.
    """
    pieces = [
        piece
        for holding in holdings
        for piece in _shown(holding)
        if len(piece.shape) > 1 and _is_short(piece)
    ]
    if all(len(_nested(piece.document(), " ")) <= width for piece in pieces):
        return width
    drawn = [_nested(piece.document(), "\n") for piece in pieces]
    longest = max(len(row) for text in drawn for row in text.split("\n"))
    return longest if longest <= width else 0


def _shown(holding: Holding) -> list[Piece]:
    """Return the pieces to show: all of a few, else the first and the last ones."""
    pieces = list(holding.pieces)
    if not holding.omitted and len(pieces) <= FEW:
        return pieces
    return pieces[:FIRST] + pieces[-LAST:]


def _in_one_bracket(texts: Sequence[Text], sign: Signs) -> list[Text]:
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


def _piece(piece: Piece, sign: Signs, width: int) -> Text:
    """Return a tensor nested like its shape, or its ends if it is too wide; an object as JSON."""
    style = colours.of_source(piece.source)
    if piece.is_object:
        body = json.dumps(piece.value, ensure_ascii=False)
        room = max(width, 12)
        return Text(body if len(body) <= room else body[: room - len(sign.more)] + sign.more, style)
    whole = []
    if _is_short(piece):  # in one line, or one line per row
        whole = [_nested(piece.document(), gap) for gap in (" ", "\n")]
    for body in whole:
        if max(map(len, body.split("\n"))) <= width or len(piece.values) <= 2:
            return Text(body, style)
    last = piece.last_values or piece.values
    depth = len(piece.shape)
    for count in (3, 2, 1):  # elements at either end: the most that fit
        ends = [*map(number, piece.values[:count]), sign.more, *map(number, last[-count:])]
        body = f"{'[' * depth}{' '.join(ends)}{']' * depth}"
        if len(body) <= min(width, CUT):
            break
    return Text(whole[0] if whole and len(whole[0]) <= len(body) else body, style)


def _is_short(piece: Piece) -> bool:
    return not piece.last_values and len(piece.values) <= SHORT


def _nested(rows: Any, gap: str, depth: int = 1) -> str:
    """Return nested brackets, with ``gap`` between rows; a new line is indented by ``depth``."""
    if not isinstance(rows, list):
        return number(rows)
    between = " "
    if rows and isinstance(rows[0], list) and gap == "\n":
        between = gap + " " * depth
    return f"[{between.join(_nested(row, gap, depth + 1) for row in rows)}]"
