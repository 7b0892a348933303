"""The list of operations."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from distdemo.render import colours
from distdemo.render.frame import frame


def op_list(entries: Sequence[tuple[str, str, str]]) -> Group:
    """A table of (command, torch's call, meaning)."""
    table: Table = frame()
    table.add_column("Command", style="bold", no_wrap=True)
    table.add_column("In torch.distributed", no_wrap=True)
    table.add_column("What it does", overflow="fold")
    for command, call, meaning in entries:
        table.add_row(command, call, meaning)
    hint = "distdemo explain OP draws one; distdemo OP runs it; distdemo OP --help lists its flags."
    return Group(table, Text(hint, style=colours.QUIET))
