"""Cells of tables for the tensors and objects that ranks hold, in the colours of their sources."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.text import Text

from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.format import number, plural, ranks_text
from distdemo.view.held import Holding, Piece
from distdemo.view.tables import WIDTHS

CUT = 17  # width of a tensor that is shown by its ends
SHORT = 16  # largest number of elements that is shown whole
FEW = 4  # largest number of pieces of which all are shown
OBJECT_LINES = 8  # shown of an object
LONGEST_SOURCE = 14  # characters of the names of source ranks; more ranks are counted
FIRST = 2  # pieces shown from the start of more; the last one follows


def rank_cell(rank: int) -> Text:
    """Return the number of a rank in its colour."""
    return Text(str(rank), colours.of_rank(rank))


class DataCells(NamedTuple):
    """The cells of a rank's data, side by side.

    Attributes:
        data: Pieces, in one line or one line per row.
        source: Source ranks of the pieces.
        pickle: Sizes of the objects' pickles.
    """

    data: Text
    source: Text
    pickle: Text


def data_cells(holding: Holding, sign: Signs, width: int = WIDTHS[0]) -> DataCells:
    """Return the cells of this data, the pieces no wider than ``width`` if possible."""
    if holding.undefined or not holding.pieces:
        none = Text(sign.none, colours.QUIET)
        name = "undefined" if holding.undefined else "nothing"
        return DataCells(Text(name, colours.QUIET), none, none)
    pieces = list(holding.pieces)
    if holding.omitted or len(pieces) > FEW:
        pieces = [*pieces[:FIRST], pieces[-1]]
    lines = [_lines(piece, sign, width) for piece in pieces]
    left_out = len(holding.pieces) + holding.omitted - len(pieces)
    if left_out:
        more = Text(sign.more, colours.QUIET)
        lines.insert(FIRST, DataCells(more + f" {left_out} more", more, more))
    columns = zip(*lines, strict=True)
    return DataCells(*(Text("\n").join(column) for column in columns))


def _lines(piece: Piece, sign: Signs, width: int) -> DataCells:
    """Return the cells of one piece, of equal height."""
    data = Text(_drawn(piece, sign, width), colours.of_sources(piece.sources))
    below = "\n" * data.plain.count("\n")
    size = f"{piece.pickled_bytes} B" if piece.is_object else ""
    return DataCells(
        data,
        Text(_source_text(piece.sources), colours.of_sources(piece.sources)) + below,
        Text(size + below, colours.QUIET),
    )


def _source_text(ranks: Sequence[int]) -> str:
    """Return ``rank 2``, ``ranks 0-3``, or the number of ranks where their names are too long."""
    names = f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"
    return names if len(names) <= LONGEST_SOURCE else plural(len(ranks), "rank")


def _drawn(piece: Piece, sign: Signs, width: int) -> str:
    """Return a tensor nested like its shape, or its ends if it is too wide; an object as JSON."""
    if piece.is_object:
        body = json.dumps(piece.value, ensure_ascii=False)
        lines = textwrap.wrap(body, max(width, 12), replace_whitespace=False)
        return "\n".join([*lines[:OBJECT_LINES], *[sign.more] * (len(lines) > OBJECT_LINES)])
    if not piece.last_values and len(piece.values) <= SHORT:
        for gap in (" ", "\n"):  # in one line, or one line per row
            body = _nested(piece.document(), gap)
            if max(map(len, body.split("\n"))) <= width or len(piece.values) <= 2:
                return body
    last = piece.last_values or piece.values
    depth = len(piece.shape)
    for count in (3, 2, 1):  # elements at either end: the most that fit
        ends = [*map(number, piece.values[:count]), sign.more, *map(number, last[-count:])]
        body = f"{'[' * depth}{' '.join(ends)}{']' * depth}"
        if len(body) <= min(width, CUT):
            break
    return body


def _nested(rows: Any, gap: str, depth: int = 1) -> str:
    """Return nested brackets, with ``gap`` between rows; a new line is indented by ``depth``."""
    if not isinstance(rows, list):
        return number(rows)
    between = " "
    if rows and isinstance(rows[0], list) and gap == "\n":
        between = gap + " " * depth
    return f"[{between.join(_nested(row, gap, depth + 1) for row in rows)}]"
