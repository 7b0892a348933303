"""Show the result of a cell."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.calls.text import rank_label, rows_text
from distdemo.interactive.records import CellReport, RanksText, ShellReport
from distdemo.view import colours
from distdemo.view.blocks import Block, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import plural


def cell_view(cell: CellReport, *, values: bool = True) -> Iterator[Block]:
    """Yield the values, if they are wanted, and the errors and verdict of a cell."""
    if cell.values and values:
        yield Paragraph(_aligned(cell.values), verbatim=True)
    for each in cell.errors:
        yield Paragraph(f"{rank_label(each.ranks)}\n{each.text}", colours.WRONG, verbatim=True)
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


def _aligned(texts: tuple[RanksText, ...]) -> str:
    """Return each text after its ranks, its further lines below its first."""
    labels = [rank_label(each.ranks) for each in texts]
    width = max(map(len, labels))
    gap = "\n" + " " * (width + 2)
    return "\n".join(
        f"{label:{width}}  {each.text.replace(chr(10), gap)}"
        for label, each in zip(labels, texts, strict=True)
    )
