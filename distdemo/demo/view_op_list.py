"""The list of operations and their forms."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.text import Text

from distdemo.view import colours
from distdemo.view.grid import Column, Grid, fitting


def op_list(entries: Sequence[tuple[str, str, str, str]], console: Console) -> Group:
    """A table of (command, the flags of a form, torch's call, meaning).

    A form with flags stands under its command.
    """
    heads = [Column("Command"), Column("In torch.distributed"), Column("What it does", folds=True)]
    grid = Grid(heads)
    for command, flags, call, meaning in entries:
        name = Text(f"  {flags}") if flags else Text(command, style="bold")
        grid.rows.append([name, call, meaning])
    hint = "distdemo explain OP draws one; distdemo OP runs it; distdemo OP --help lists its flags."
    return Group(fitting(console, lambda _: grid), Text(hint, style=colours.QUIET))
