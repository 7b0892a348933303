"""Draw an op in the terminal: the ranks' data before and after, and how it moves."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo import ops
from distdemo.demo.records import Explanation, Holding, Piece
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec
from distdemo.view import colours
from distdemo.view.blocks import Block, Drawing, Facts, Heading, Paragraph
from distdemo.view.console import Signs, signs
from distdemo.view.format import number, plural, ranks_text, shape_text, size_text
from distdemo.view.tables import WIDTHS, Column, Grid, full_width

JOINTS = "   ─ ┌┐┬ └┘┴│├┤┼"
"""Parts of the bus, a vertical line that data enters from the left and leaves to the right. The
index has a bit for each arm of the part: 8 for up, 4 for down, 2 for left, 1 for right."""
CUT = 17  # width of a tensor that is shown by its ends
SHORT = 16  # largest number of elements that is shown whole
FEW = 4  # largest number of pieces of which all are shown
OBJECT_LINES = 8  # shown of an object
FIRST = 2  # pieces shown from the start of more; the last one follows


def title(
    spec: OpSpec,
    sign: Signs,
    world: WorldSpec | None = None,
) -> str:
    """Return op and form, reduce op, root, group, ranks, backend, device, dtype and shape."""
    op = ops.REGISTRY[spec.op]
    flags = op.form(spec).flags
    group = "" if spec.members is None else f"group {ranks_text(spec.members)}"
    data = shape_text(spec.dtype, spec.shape)
    if spec.objects or op.is_barrier:
        data = ""
    elif spec.sizes is not None or spec.splits:  # every rank has its own shape
        data = spec.dtype
    parts = (
        f"{spec.op} {flags}".strip(),
        spec.reduce_op,
        "" if spec.root is None else f"root {spec.root}{' of its group' if group else ''}",
        "" if spec.src is None else f"{spec.src} to {spec.dst}",
        "async" if spec.async_op and "--nonblocking" not in flags else "",
        group,
        plural(spec.group_size if world is None else world.world_size, "rank"),
        "" if world is None else f"{world.backend} {sign.dot} {world.device}",
        data,
    )
    return f" {sign.dot} ".join(filter(None, parts))


def moved(traffic: Traffic) -> str:
    """Return the least bytes that a rank has to move: ``2(n−1)/n × S = 24 B, sent by ...``."""
    size = size_text(traffic.payload_bytes)
    if traffic.busbw_formula == "1":
        return f"{size}, {traffic.payload_is}, {traffic.moved_by}"
    least = size_text(traffic.payload_bytes * traffic.busbw_factor)
    return (
        f"at least {traffic.busbw_formula} × S = {least}, {traffic.moved_by}; "
        f"S = {size}, {traffic.payload_is}"
    )


def picture(explanation: Explanation, sign: Signs) -> Iterator[Block]:
    """Yield the drawing, then the call, its use, its cost and a common mistake."""
    spec = explanation.spec
    doc = explanation.words
    yield Heading(title(spec, sign))
    yield Paragraph(doc.summary)
    yield Paragraph()
    yield Drawing(partial(_drawing, explanation))
    hidden = spec.group_size - len(explanation.ranks)
    if hidden:
        yield Paragraph(f" {sign.more} {plural(hidden, 'more rank')}", colours.QUIET)
    yield Paragraph()
    for note in ops.REGISTRY[spec.op].notes(spec):
        yield Paragraph(note)
    facts = [("Call", doc.call), *(("Name", name) for name in explanation.names)]
    facts.append(("Used to", doc.when))
    if not explanation.is_barrier:
        moves = moved(explanation.traffic)
        facts.append(("Costs", f"{moves[:1].upper()}{moves[1:]}."))
    yield Facts((*facts, ("Mistake", doc.mistake)))


def code_view(explanation: Explanation, _: Signs) -> Iterator[Block]:
    """Yield the program alone, so that it can be piped into a file."""
    yield Paragraph(explanation.code.removesuffix("\n"), verbatim=True)


def _drawing(explanation: Explanation, console: Console) -> RenderableType:
    """Return the widest drawing that fits, or else a list without the bus."""
    sign = signs(console)
    is_barrier = explanation.is_barrier
    moves = explanation.spec.reduce_op or ("waits for all" if is_barrier else "moves")
    source = "" if is_barrier else "from"
    for width in WIDTHS:
        table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold")
        for name in ("", "before", moves, "after", source):
            table.add_column(name, no_wrap=True)
        for index, (rank, before, after, origin) in enumerate(_rows(explanation, sign, width)):
            lines = max(cell.plain.count("\n") for cell in (before, after)) + 1
            table.add_row(rank, before, _bus(explanation, index, lines, sign), after, origin)
        if full_width(console, table) <= console.width:
            return table
    columns = [Column(""), Column("before"), Column("after"), Column(source)]
    rows = _rows(explanation, sign, console.width - 24)
    return Grid(columns, [list(row) for row in rows]).lines()


def _rows(explanation: Explanation, sign: Signs, width: int) -> Iterator[tuple[Text, ...]]:
    """Yield every rank's name, its data before and after, and where that comes from."""
    for rank in explanation.ranks:
        before = data_cells(rank.before, sign, width).data
        after, origin, _ = data_cells(rank.after, sign, width)
        if explanation.is_barrier:
            before = Text("arrives")
            after = Text("continues")
            origin = Text()
        yield Text(f"rank {rank.rank}", colours.of_rank(rank.rank)), before, after, origin


def _bus(explanation: Explanation, index: int, lines: int, sign: Signs) -> str:
    """Return a rank's part of the bus, as high as the rank's row."""
    order = [rank.rank for rank in explanation.ranks]
    senders = {order.index(sender) for sender, _ in explanation.moves}
    receivers = {order.index(receiver) for _, receiver in explanation.moves}
    ends = senders | receivers or {index}
    up = min(ends) < index <= max(ends)
    down = min(ends) <= index < max(ends)
    alone = not explanation.moves  # with one rank, the data stays there
    sends = alone or index in senders
    receives = alone or index in receivers
    joint = JOINTS[8 * up + 4 * down + 2 * sends + receives]
    arm = f"{'──' if sends else '  '}{joint}{f'──{sign.arrow}' if receives else '   '}"
    return arm + ("\n  │" if down else "\n") * (lines - 1)


# -------------------------------------------------------------------------------------------- cells


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
    data = Text(_drawn(piece, sign, width), colours.of_source(piece.source))
    below = "\n" * data.plain.count("\n")
    source = "all" if piece.source is None else f"rank {piece.source}"
    size = f"{piece.pickled_bytes} B" if piece.is_object else ""
    return DataCells(
        data,
        Text(source, colours.of_source(piece.source)) + below,
        Text(size + below, colours.QUIET),
    )


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
