"""The list of algorithms by op, with their costs and sources."""

from __future__ import annotations

from functools import partial

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.trace.records import AlgorithmInfo, AlgorithmList
from distdemo.trace.texts import LETTERS, formula
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.format import plural
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

COLUMNS = {"Rounds": "rounds", "Sent by a rank, max": "sent", "Total": "total"}
"""Column headings, and the formulas in them."""
HINT = "distdemo trace OP -a NAME shows one round by round; distdemo trace compare OP runs all."


def table(record: AlgorithmList, console: Console) -> Group:
    """Return one table per op. Its first algorithm is the default."""
    sign = signs(console)
    columns = [Column("Algorithm"), *(Column(head, folds=True) for head in COLUMNS)]
    by_op: dict[str, list[AlgorithmInfo]] = {}
    for each in record.algorithms:
        by_op.setdefault(each.op, []).append(each)
    parts: list[RenderableType] = []
    for op, found in by_op.items():
        rows: list[list[Cell]] = [
            [
                Text(each.name, style="bold"),
                *(formula(each.formulas[name], sign) for name in COLUMNS.values()),
            ]
            for each in found
        ]
        parts += [
            heading(op.replace("_", "-")),
            fitting(console, partial(lambda grid, _: grid, Grid(columns, rows))),
        ]
        for each in found:
            name = Text(f"{each.name}: ", style="bold")
            parts.append(name + Text(each.summary, style="not bold"))
            parts.append(Text(f"  {each.source}.", style=colours.QUIET))
        parts.append(Text())
    letters = f"B: bytes of one rank's tensor, or of all n parts; {LETTERS}"
    parts.append(Text(letters, style=colours.QUIET))
    return Group(*parts, Text(HINT, style=colours.QUIET))


def summary(record: AlgorithmList, console: Console) -> Text:  # noqa: ARG001 - a view's form
    """Return the number of algorithms."""
    return Text(plural(len(record.algorithms), "algorithm"))
