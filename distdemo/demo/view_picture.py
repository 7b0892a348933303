"""An op drawn in the terminal: who holds what before, which way it moves, who holds what after."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from distdemo.demo import view_holding as holding
from distdemo.demo.holdings import Holding
from distdemo.demo.reports import Explanation
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import widest
from distdemo.view.numbers import ROOMS, moved, plural, shape_text

# The bus: one vertical line that sources flow into from the left and results leave to the right.
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


def picture(explanation: Explanation, console: Console) -> Group:
    """The drawing, then when it is used, what it costs, the call and the usual mistake."""
    sign = signs(console)
    words = explanation.words
    parts: list[RenderableType] = [
        heading(_title(explanation, sign)),
        Text(words.summary),
        Padding(_fitting(explanation, console), (1, 0)),
        *(Text(note) for note in explanation.notes),
        _facts(explanation),
    ]
    return Group(*parts)


def _fitting(explanation: Explanation, console: Console) -> Table:
    """The roomiest drawing that the console is wide enough for."""
    for room in ROOMS:
        drawing = _drawing(explanation, signs(console), room)
        if widest(console, drawing) <= console.width:
            break
    return drawing


def _title(explanation: Explanation, sign: Signs) -> str:
    spec = explanation.spec
    parts = [spec.op, plural(spec.group_size, "rank")]
    if not (spec.objects or explanation.meets):
        parts.append(shape_text(spec.dtype, spec.shape))
    if spec.reduce_op is not None:
        parts.insert(1, spec.reduce_op)
    if spec.root is not None:
        parts.insert(1, f"root {spec.root}")
    return f" {sign.dot} ".join(parts)


def _drawing(explanation: Explanation, sign: Signs, room: int) -> Table:
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("before")
    moves = "waits for all" if explanation.meets else "moves"
    table.add_column(explanation.spec.reduce_op or moves, no_wrap=True)
    table.add_column("after")
    table.add_column("", no_wrap=True, style=colours.QUIET)
    rows = zip(explanation.ranks, explanation.before, explanation.after, strict=True)
    for place, (rank, before, after) in enumerate(rows):
        cells = holding.cell(before, sign, room), holding.cell(after, sign, room)
        if explanation.meets:
            cells = Text("arrives"), Text("goes on")
        lines = max(cell.plain.count("\n") for cell in cells) + 1
        table.add_row(
            Text(f"rank {rank}", style=colours.of_rank(rank)),
            cells[0],
            Text(_arm(place, lines, explanation, sign)),
            cells[1],
            _origin(after, sign),
        )
    hidden = explanation.spec.group_size - len(explanation.ranks)
    if hidden:
        table.add_row(sign.more, Text(f"{plural(hidden, 'rank')} more", style=colours.QUIET))
    return table


def _origin(after: Holding, sign: Signs) -> Text:
    if after.undefined or not after.pieces:
        return Text("")
    text = holding.sources(after, sign)
    return Text("\n").join([Text("from ") + line for line in text.split("\n")])


def _arm(place: int, lines: int, explanation: Explanation, sign: Signs) -> str:
    """One rank's part of the bus, as many lines high as its row."""
    order = {rank: position for position, rank in enumerate(explanation.ranks)}
    sources = {order[source] for source, _ in explanation.edges}
    targets = {order[target] for _, target in explanation.edges}
    ends = sources | targets or {place}
    up, down = min(ends) < place <= max(ends), min(ends) <= place < max(ends)
    gives, gets = place in sources, place in targets
    if not explanation.edges:
        gives, gets = True, True  # one rank: what it holds stays where it is
    joint = _JOINTS[(up, down, gives, gets)]
    left = "──" if gives else "  "
    right = f"──{sign.arrow}" if gets else "   "
    tail = "  │" if down else ""
    arm = "\n".join([f"{left}{joint}{right}", *[tail] * (lines - 1)])
    return arm if sign.right == "✓" else _plain(arm)


def _plain(line: str) -> str:
    return "".join({"─": "-", "│": "|"}.get(c, c if ord(c) < 128 else "+") for c in line)


def _facts(explanation: Explanation) -> Table:
    words, traffic = explanation.words, explanation.traffic
    n = explanation.spec.group_size
    moves = moved(traffic.payload_bytes, traffic.busbw_formula, traffic.busbw_factor)
    cost = f"{moves} over the busiest link"
    if traffic.busbw_formula == "1":
        cost += f" ({traffic.payload_is}; busbw factor 1)."
    else:
        factor = f"busbw factor {traffic.busbw_formula} = {traffic.busbw_factor:.4g} at n = {n}"
        cost += f" (S is {traffic.payload_is}; {factor})."
    table = Table(box=None, show_header=False, padding=(0, 1), show_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Call", words.call)
    table.add_row("Used to", words.when)
    if not explanation.meets:
        table.add_row("Costs", cost)
    table.add_row("Mistake", words.mistake)
    return table
