"""Show the result of a cell, on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from distdemo.calls.text import rank_label, rows_text
from distdemo.interactive.records import CellReport, RanksText, ShellReport
from distdemo.view import colours
from distdemo.view.blocks import Block, Paragraph, Summary, show_blocks
from distdemo.view.console import Signs, recorder
from distdemo.view.format import plural

NOTEBOOK_WIDTH = 100
NOTEBOOK_FORMAT = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'


def cell_view(cell: CellReport) -> Iterator[Block]:
    """Yield the values, errors and verdict of a cell."""
    if cell.values:
        yield Paragraph(_aligned(cell.values), verbatim=True)
    for error in cell.errors:
        yield Paragraph(f"{rank_label(error.ranks)}\n{error.text}", colours.WRONG, verbatim=True)
    if cell.what:
        yield Paragraph(cell.what, colours.WRONG)
    if cell.rows:
        yield Paragraph("\n".join(rows_text(cell.rows)), verbatim=True)
    if cell.rule:
        yield Paragraph(cell.rule)
    if cell.variables:
        yield Paragraph(f"New ranks replace these. {cell.variables}", colours.QUIET)


def session_view(report: ShellReport, _: Signs) -> Iterator[Block]:
    """Yield the verdict of a session."""
    failed = sum(not cell.ok for cell in report.cells)
    text = f"{plural(failed, 'line')} failed." if failed else plural(len(report.cells), "line")
    yield Summary(text, report.ok)


def _aligned(values: tuple[RanksText, ...]) -> str:
    """Return each value after its ranks, its further lines below its first."""
    labels = [rank_label(value.ranks) for value in values]
    width = max(map(len, labels))
    gap = "\n" + " " * (width + 2)
    return "\n".join(
        f"{label:{width}}  {value.text.replace(chr(10), gap)}"
        for label, value in zip(labels, values, strict=True)
    )


class CellInNotebook:
    """Result of a cell, in the forms that a notebook asks for: text and HTML."""

    def __init__(self, cell: CellReport) -> None:
        self._cell = cell

    def __repr__(self) -> str:
        """Return it as text."""
        return self._console().export_text().rstrip()

    def _repr_html_(self) -> str:
        return self._console().export_html(inline_styles=True, code_format=NOTEBOOK_FORMAT)

    def _console(self) -> Console:
        console = recorder(NOTEBOOK_WIDTH)
        show_blocks(console, cell_view(self._cell))
        return console
