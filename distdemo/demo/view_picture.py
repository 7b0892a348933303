"""An op drawn in the terminal: who holds what before, which way it moves, who holds what after."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from distdemo import ops
from distdemo.demo.records import Explanation, Holding
from distdemo.demo.view import held, sources
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import moved, plural, shape_text
from distdemo.view.tables import ROOMS, heading, widest

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
    sign, spec = signs(console), explanation.spec
    parts = [
        spec.op,
        *([f"root {spec.root}"] if spec.root is not None else []),
        *([spec.reduce_op] if spec.reduce_op is not None else []),
        plural(spec.group_size, "rank"),
    ]
    if not (spec.objects or explanation.meets):
        parts.append(shape_text(spec.dtype, spec.shape))
    for room in ROOMS:  # the roomiest drawing that the console is wide enough for
        drawing = _drawing(explanation, sign, room)
        if widest(console, drawing) <= console.width:
            break
    return Group(
        heading(f" {sign.dot} ".join(parts)),
        Text(explanation.words.summary),
        Padding(drawing, (1, 0)),
        *(Text(note) for note in ops.REGISTRY[spec.op].notes(spec)),
        _facts(explanation),
    )


def _drawing(explanation: Explanation, sign: Signs, room: int) -> Table:
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("before")
    moves = "waits for all" if explanation.meets else "moves"
    table.add_column(explanation.spec.reduce_op or moves, no_wrap=True)
    table.add_column("after")
    table.add_column("", no_wrap=True, style=colours.QUIET)
    for place, each in enumerate(explanation.ranks):
        before, after = held(each.before, sign, room), held(each.after, sign, room)
        if explanation.meets:
            before, after = Text("arrives"), Text("goes on")
        lines = max(cell.plain.count("\n") for cell in (before, after)) + 1
        table.add_row(
            Text(f"rank {each.rank}", style=colours.of_rank(each.rank)),
            before,
            Text(_arm(place, lines, explanation, sign)),
            after,
            _origin(each.after, sign),
        )
    hidden = explanation.spec.group_size - len(explanation.ranks)
    if hidden:
        table.add_row(sign.more, Text(f"{plural(hidden, 'rank')} more", style=colours.QUIET))
    return table


def _origin(after: Holding, sign: Signs) -> Text:
    if after.undefined or not after.pieces:
        return Text("")
    lines = sources(after, sign).split("\n")
    return Text("\n").join(Text("from ") + line for line in lines)


def _arm(place: int, lines: int, explanation: Explanation, sign: Signs) -> str:
    """One rank's part of the bus, as many lines high as its row."""
    order = {each.rank: position for position, each in enumerate(explanation.ranks)}
    givers = {order[giver] for giver, _ in explanation.moves}
    takers = {order[taker] for _, taker in explanation.moves}
    ends = givers | takers or {place}
    up, down = min(ends) < place <= max(ends), min(ends) <= place < max(ends)
    gives, gets = place in givers, place in takers
    if not explanation.moves:
        gives, gets = True, True  # one rank: what it holds stays where it is
    joint = _JOINTS[(up, down, gives, gets)]
    left = "──" if gives else "  "
    right = f"──{sign.arrow}" if gets else "   "
    tail = "  │" if down else ""
    arm = "\n".join([f"{left}{joint}{right}", *[tail] * (lines - 1)])
    if sign.right == "✓":
        return arm
    return "".join({"─": "-", "│": "|"}.get(c, c if ord(c) < 128 else "+") for c in arm)


def _facts(explanation: Explanation) -> Table:
    words, traffic = explanation.words, explanation.traffic
    moves = moved(traffic.payload_bytes, traffic.busbw_formula, traffic.busbw_factor)
    factor = f"busbw factor {traffic.busbw_formula}"
    if traffic.busbw_formula == "1":
        cost = f"{moves} over the busiest link ({traffic.payload_is}; {factor})."
    else:
        factor += f" = {traffic.busbw_factor:.4g} at n = {explanation.spec.group_size}"
        cost = f"{moves} over the busiest link (S is {traffic.payload_is}; {factor})."
    table = Table(box=None, show_header=False, padding=(0, 1), show_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Call", words.call)
    table.add_row("Used to", words.when)
    if not explanation.meets:
        table.add_row("Costs", cost)
    table.add_row("Mistake", words.mistake)
    return table
