"""Draw an op in the terminal: the ranks' data before and after, and how it moves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo import ops
from distdemo.demo.records import Explanation
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec
from distdemo.view import colours
from distdemo.view.blocks import Block, Drawing, Facts, Heading, Paragraph, Summary
from distdemo.view.console import Signs, signs
from distdemo.view.data import data_cells
from distdemo.view.format import plural, ranks_text, shape_text, size_text
from distdemo.view.tables import WIDTHS, Column, Grid, full_width

JOINTS = "   ─ ┌┐┬ └┘┴│├┤┼"
"""Parts of the bus, a vertical line that data enters from the left and leaves to the right. The
index has a bit for each arm of the part: 8 for up, 4 for down, 2 for left, 1 for right."""


def title(
    spec: OpSpec,
    sign: Signs,
    world: WorldSpec | None = None,
) -> str:
    """Return op and form, reduce op, root, group, ranks, backend, device, dtype and shape."""
    op = ops.REGISTRY[spec.op]
    form = op.form(spec)
    group = "" if spec.members is None else f"group {ranks_text(spec.members)}"
    data = shape_text(spec.dtype, spec.shape)
    if spec.objects or op.is_barrier:
        data = ""
    elif spec.sizes is not None or spec.splits:  # every rank has its own shape
        data = spec.dtype
    parts = (
        f"{spec.op} {form.flags}".strip(),
        spec.reduce_op,
        "" if spec.root is None else f"root {spec.root}{' of its group' if group else ''}",
        "" if spec.src is None else f"{spec.src} to {spec.dst}",
        "async" if spec.async_op and "nonblocking" not in form.options else "",
        group,
        plural(spec.group_size if world is None else world.world_size, "rank"),
        "" if world is None else f"{world.backend} {sign.dot} {world.device}",
        data,
    )
    return f" {sign.dot} ".join(filter(None, parts))


def moved(traffic: Traffic, spec: OpSpec) -> str:
    """Return the bytes that a rank has to move: ``at least 2(n−1)/n × S = 24 B, sent by ...``."""
    if spec.group_size == 1:
        return "0 B: there is no other rank"
    besides = ops.REGISTRY[spec.op].form(spec).besides
    return "; ".join(filter(None, (_moved(traffic), besides)))


def _moved(traffic: Traffic) -> str:
    if traffic.counted_bytes is not None:
        return f"{size_text(traffic.counted_bytes)}, {traffic.moved_by}"
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
    yield Summary(doc.summary, None)
    yield Paragraph()
    yield Drawing(partial(_drawing, explanation))
    hidden = spec.group_size - len(explanation.ranks)
    if hidden:
        yield Paragraph(f" {sign.more} {plural(hidden, 'more rank')}", colours.QUIET)
    yield Paragraph()
    for note in ops.REGISTRY[spec.op].notes(spec):
        yield Paragraph(note)
        yield Paragraph()
    facts = [("Call", doc.call), *(("Name", name) for name in explanation.names)]
    facts.append(("Used to", doc.when))
    if not explanation.is_barrier:
        moves = moved(explanation.traffic, spec)
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
    """Return a rank's part of the bus, as high as the rank's row.

    The bus joins the ranks that exchange data; other ranks' own data passes it in a straight line.
    """
    order = [rank.rank for rank in explanation.ranks]
    moves = [(order.index(sender), order.index(receiver)) for sender, receiver in explanation.moves]
    joined = {rank for move in moves if len({*move}) > 1 for rank in move}
    sends = any(sender == index for sender, _ in moves)
    receives = any(receiver == index for _, receiver in moves)
    up = bool(joined) and min(joined) < index <= max(joined)
    down = bool(joined) and min(joined) <= index < max(joined)
    passes = index not in joined and up
    joint = JOINTS[8 * up + 4 * down + (0 if passes else 2 * sends + receives)]
    arm = f"{'──' if sends else '  '}{joint}{f'──{sign.arrow}' if receives else '   '}"
    return arm + ("\n  │" if down else "\n") * (lines - 1)
