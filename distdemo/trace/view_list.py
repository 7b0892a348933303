"""All algorithms by op: how, what they cost, and where that is from."""

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

SHOWN = {"Rounds": "rounds", "Sent by a rank, most": "sent", "In all": "total"}
"""Heads of columns, and the formulas in them."""
HINT = "distdemo trace OP -a NAME shows one round by round; distdemo trace compare OP runs all."


def table(record: AlgorithmList, console: Console) -> Group:
    """A table an op; its first algorithm is the one that is taken unless another is named."""
    sign = signs(console)
    columns = [Column("Algorithm"), *(Column(head, folds=True) for head in SHOWN)]
    by_op: dict[str, list[AlgorithmInfo]] = {}
    for each in record.algorithms:
        by_op.setdefault(each.op, []).append(each)
    parts: list[RenderableType] = []
    for op, found in by_op.items():
        rows: list[list[Cell]] = [
            [
                Text(each.name, style="bold"),
                *(formula(each.formulas[name], sign) for name in SHOWN.values()),
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
    """How many there are."""
    return Text(plural(len(record.algorithms), "algorithm"))
