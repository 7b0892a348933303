"""The result of a cell in a notebook, as HTML and as text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from distdemo.interactive.records import CellReport
from distdemo.interactive.view import cell_view
from distdemo.view.blocks import show_blocks
from distdemo.view.console import recorder
from distdemo.view.format import ranks_text

WIDTH = 100
FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'


class Shown:
    """A cell's result, in the forms that a notebook asks for."""

    def __init__(self, cell: CellReport) -> None:
        self._cell = cell

    def __repr__(self) -> str:
        """Return it as text."""
        return self._console().export_text().rstrip()

    def _repr_html_(self) -> str:
        return self._console().export_html(inline_styles=True, code_format=FORMAT)

    def _console(self) -> Console:
        console = recorder(WIDTH)
        if self._cell.values:
            table = Table("Ranks", "Value")
            for each in self._cell.values:
                table.add_row(ranks_text(each.ranks), each.text)
            console.print(table)
        show_blocks(console, cell_view(self._cell, values=False))
        return console
