"""An op drawn in the terminal: who holds what before, which way it moves, who holds what after."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from distdemo.model import Holding
from distdemo.render import colours, holding
from distdemo.render.console import Signs, signs
from distdemo.render.frame import heading
from distdemo.render.numbers import plural, shape_text, size
from distdemo.reports import Explanation

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
        Padding(_drawing(explanation, sign), (1, 0)),
        *(Text(note) for note in explanation.notes),
        _facts(explanation),
    ]
    return Group(*parts)


def _title(explanation: Explanation, sign: Signs) -> str:
    spec = explanation.spec
    parts = [spec.op, plural(spec.world_size, "rank"), shape_text(spec.dtype, spec.shape)]
    if spec.reduce_op is not None:
        parts.insert(1, spec.reduce_op)
    if spec.root is not None:
        parts.insert(1, f"root {spec.root}")
    return f" {sign.dot} ".join(parts)


def _drawing(explanation: Explanation, sign: Signs) -> Table:
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("before")
    table.add_column(_between(explanation), no_wrap=True, justify="center")
    table.add_column("after")
    table.add_column("", no_wrap=True, style=colours.QUIET)
    reduced = f"{explanation.spec.reduce_op} of all"
    for rank, (before, after) in enumerate(zip(explanation.before, explanation.after, strict=True)):
        table.add_row(
            Text(f"rank {rank}", style=colours.of_rank(rank)),
            holding.cell(before, sign),
            Text(_arm(rank, explanation, sign)),
            holding.cell(after, sign),
            _origin(after, reduced, sign),
        )
    hidden = explanation.spec.world_size - len(explanation.before)
    if hidden:
        table.add_row(sign.more, Text(f"{plural(hidden, 'rank')} more", style=colours.QUIET))
    return table


def _between(explanation: Explanation) -> str:
    return explanation.spec.reduce_op or "moves"


def _origin(after: Holding, reduced: str, sign: Signs) -> Text:
    if after.undefined or not after.pieces:
        return Text("")
    text = holding.sources(after, reduced, sign)
    return Text("\n").join([Text("from ") + line for line in text.split("\n")])


def _arm(rank: int, explanation: Explanation, sign: Signs) -> str:
    """This rank's row of the bus."""
    sources = {source for source, _ in explanation.edges}
    targets = {target for _, target in explanation.edges}
    on_bus = sources | targets
    if not on_bus:
        return f"──{sign.arrow}" if sign.right == "✓" else f"--{sign.arrow}"
    up, down = rank > min(on_bus), rank < max(on_bus)
    inside = min(on_bus) <= rank <= max(on_bus)
    gives, gets = rank in sources, rank in targets
    joint = _JOINTS[(inside and up, inside and down, gives, gets)]
    left = "──" if gives else "  "
    right = f"──{sign.arrow}" if gets else "   "
    line = f"{left}{joint}{right}"
    return line if sign.right == "✓" else _plain(line)


def _plain(line: str) -> str:
    return "".join({"─": "-", "│": "|"}.get(c, c if ord(c) < 128 else "+") for c in line)


def _facts(explanation: Explanation) -> Table:
    words, traffic = explanation.words, explanation.traffic
    n = explanation.spec.world_size
    cost = (
        f"S = {size(traffic.payload)} ({traffic.payload_words}), busbw factor "
        f"{traffic.formula} = {traffic.factor:.4g} at n = {n}: {size(traffic.bus_bytes)} over the "
        "busiest link."
    )
    table = Table(box=None, show_header=False, padding=(0, 1), show_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Call", words.call)
    table.add_row("Used to", words.when)
    table.add_row("Costs", cost)
    table.add_row("Mistake", words.mistake)
    return table
