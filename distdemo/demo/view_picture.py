"""Draw an op in the terminal: the ranks' data before and after, and how it moves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo import ops
from distdemo.demo.records import Explanation
from distdemo.demo.view_cells import data_cell, moved, same_layout, source_cell
from distdemo.view import colours
from distdemo.view.blocks import Block, Drawing, Facts, Heading, Paragraph
from distdemo.view.console import Signs, signs
from distdemo.view.format import plural, shape_text
from distdemo.view.tables import WIDTHS, Column, Grid, full_width

# The bus: a vertical line. Data enters from the left, results leave to the right.
# Keyed by (up, down, left, right).
_JOINTS = {
    (False, False, False, False): " ",
    (True, True, False, False): "│",
    (True, True, True, False): "┤",
    (True, True, False, True): "├",
    (True, True, True, True): "┼",
    (False, True, True, False): "┐",
    (False, True, False, True): "┌",
    (False, True, True, True): "┬",
    (True, False, True, False): "┘",
    (True, False, False, True): "└",
    (True, False, True, True): "┴",
    (False, False, True, True): "─",
}


def picture(explanation: Explanation, sign: Signs) -> Iterator[Block]:
    """Yield the drawing, then the call, its use, its cost and a common mistake."""
    spec = explanation.spec
    title = (
        spec.op,
        "" if spec.root is None else f"root {spec.root}",
        spec.reduce_op,
        plural(spec.group_size, "rank"),
        "" if spec.objects or explanation.is_barrier else shape_text(spec.dtype, spec.shape),
    )
    yield Heading(f" {sign.dot} ".join(filter(None, title)))
    yield Paragraph(explanation.words.summary)
    yield Paragraph()
    yield Drawing(partial(_picture, explanation))
    hidden = spec.group_size - len(explanation.ranks)
    if hidden:
        yield Paragraph(f" {sign.more} {plural(hidden, 'more rank')}", colours.QUIET)
    yield Paragraph()
    for note in ops.REGISTRY[spec.op].notes(spec):
        yield Paragraph(note)
    yield Facts(tuple(_facts(explanation)))


def code_view(explanation: Explanation, _: Signs) -> Iterator[Block]:
    """Yield the program alone, so that it can be piped into a file."""
    yield Paragraph(explanation.code.removesuffix("\n"), verbatim=True)


def _picture(explanation: Explanation, console: Console) -> RenderableType:
    """Return the widest drawing that fits, or a list."""
    sign = signs(console)
    for width in WIDTHS:
        drawing = _drawing(explanation, sign, width)
        if full_width(console, drawing) <= console.width:
            return drawing
    return _listed(explanation, sign, console.width)


def _rows(explanation: Explanation, sign: Signs, width: int) -> Iterator[tuple[Text, ...]]:
    """Yield every rank's name, its data before and after, and where that comes from."""
    ranks = explanation.ranks
    width = same_layout((held for rank in ranks for held in (rank.before, rank.after)), width)
    for rank in ranks:
        before = data_cell(rank.before, sign, width)
        after = data_cell(rank.after, sign, width)
        origin = Text()
        if explanation.is_barrier:
            before = Text("arrives")
            after = Text("continues")
        elif rank.after.undefined:
            pass
        elif rank.after.pieces:
            lines = source_cell(rank.after, sign, width).split("\n")
            origin = Text("\n").join(Text("from ") + line if line else line for line in lines)
        else:
            after = Text("receives nothing", style=colours.QUIET)
        yield Text(f"rank {rank.rank}", style=colours.of_rank(rank.rank)), before, after, origin


def _listed(explanation: Explanation, sign: Signs, width: int) -> RenderableType:
    """Return the rows without arrows, for narrow consoles."""
    columns = [Column(""), Column("before"), Column("after"), Column("", beside=True)]
    grid = Grid(columns)
    grid.rows += [list(row) for row in _rows(explanation, sign, width - 24)]
    return grid.lines()


def _drawing(explanation: Explanation, sign: Signs, width: int) -> Table:
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold")
    moves = "waits for all" if explanation.is_barrier else "moves"
    for head in ("", "before", explanation.spec.reduce_op or moves, "after"):
        table.add_column(head, no_wrap=True)
    table.add_column("", no_wrap=True, style=colours.QUIET)
    for index, (name, before, after, origin) in enumerate(_rows(explanation, sign, width)):
        lines = max(cell.plain.count("\n") for cell in (before, after)) + 1
        table.add_row(name, before, Text(_arm(index, lines, explanation, sign)), after, origin)
    return table


def _arm(index: int, lines: int, explanation: Explanation, sign: Signs) -> str:
    """Return one row of the bus, as high as the rank's row."""
    order = {rank.rank: position for position, rank in enumerate(explanation.ranks)}
    senders = {order[sender] for sender, _ in explanation.moves}
    receivers = {order[receiver] for _, receiver in explanation.moves}
    ends = senders | receivers or {index}
    up = min(ends) < index <= max(ends)
    down = min(ends) <= index < max(ends)
    alone = not explanation.moves  # with one rank, the data stays there
    sends = alone or index in senders
    receives = alone or index in receivers
    joint = _JOINTS[up, down, sends, receives]
    arm = f"{'──' if sends else '  '}{joint}{f'──{sign.arrow}' if receives else '   '}"
    return arm + ("\n  │" if down else "\n") * (lines - 1)


def _facts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    doc = explanation.words
    traffic = explanation.traffic
    yield "Call", doc.call
    for name in explanation.names:
        yield "Name", name
    yield "Used to", doc.when
    if not explanation.is_barrier:
        moves = moved(traffic)
        ranks = f", n = {explanation.spec.group_size} ranks" * (traffic.busbw_formula != "1")
        yield "Costs", f"{moves[:1].upper()}{moves[1:]}{ranks}."
    yield "Mistake", doc.mistake
