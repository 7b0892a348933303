"""Show the result of a cell, on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from rich.cells import cell_len
from rich.text import Text

from distdemo.calls.text import gap_texts, rank_label, rows_text
from distdemo.calls.view import finding_view
from distdemo.interactive.records import (
    MORE,
    PROMPT,
    UNEXPECTED,
    CellReport,
    RanksText,
    ShellReport,
)
from distdemo.view import colours
from distdemo.view.blocks import Block, Fitted, Paragraph, Summary
from distdemo.view.code import highlighted
from distdemo.view.console import Signs, can_redraw, output, show
from distdemo.view.data import data_cells, rank_cell
from distdemo.view.format import plural
from distdemo.view.held import Held
from distdemo.view.tables import Column, Grid, select


def show_typed(source: str, prompt: str = PROMPT) -> None:
    """Print a statement or command after its prompts, as if it had been typed, with colours."""
    show(output(), _typed(source, prompt), wrap=False)


def show_again(line: str, prompt: str) -> None:
    """Print the line that was just typed again, in its place, with colours."""
    console = output()
    if can_redraw(console) and not console.no_color and _typed(line, prompt).spans:
        rows = ceil(cell_len(prompt + line) / console.width)
        console.file.write(f"\x1b[{rows}A\x1b[J")
        show_typed(line, prompt)


def _typed(source: str, prompt: str) -> Text:
    """Return a statement or command after its prompts."""
    code = Text(source) if source.lstrip().startswith("%") else highlighted(source)
    lines = code.split("\n", allow_blank=True)
    return Text("\n").join(
        Text.assemble(MORE if number else prompt, line) for number, line in enumerate(lines)
    )


def cell_view(cell: CellReport, sign: Signs) -> Iterator[Block]:
    """Yield the values, errors and verdict of a cell."""
    if cell.values:
        yield Paragraph(aligned(cell.values), verbatim=True)
    yield from outcome_view(cell, sign)


def outcome_view(cell: CellReport, sign: Signs) -> Iterator[Block]:
    """Yield what a cell's collective did, its errors and its verdict."""
    if cell.held:
        yield Fitted(lambda width: _held_grid(cell.held, sign, width))
    for error in cell.errors:
        yield Paragraph(f"{rank_label(error.ranks)}\n{error.text}", colours.WRONG, verbatim=True)
    if cell.what:
        yield Paragraph(cell.what, colours.WRONG)
    if cell.rows:
        yield Paragraph("\n".join(rows_text(cell.rows)), verbatim=True)
    if cell.rule:
        yield Paragraph(cell.rule)
    for warning in cell.warnings:
        yield from finding_view(warning)
    for text in gap_texts(cell.stopped, cell.gaps):
        yield Paragraph(text)
    if cell.variables:
        yield Paragraph(f"New ranks replace these. {cell.variables}", colours.QUIET)
    if not cell.is_as_expected and cell.ok:
        yield Paragraph(UNEXPECTED, colours.WRONG)


def session_view(report: ShellReport, _: Signs) -> Iterator[Block]:
    """Yield the verdict of a session."""
    if not (report.cells or report.refused):
        yield Summary("No line was run.", None, "!")
        return
    failed = sum(not cell.is_as_expected for cell in report.cells)
    meant = sum(cell.is_as_expected and not cell.ok for cell in report.cells)
    parts = [f"{plural(failed, 'line')} failed"] if failed else [plural(len(report.cells), "line")]
    if meant:
        parts.append(f"{meant} failed as expected")
    if report.refused:
        parts.append(f"{plural(len(report.refused), 'command')} refused")
    if warnings := sum(len(cell.warnings) for cell in report.cells):
        parts.append(plural(warnings, "warning"))
    is_incomplete = any(cell.stopped or cell.gaps for cell in report.cells)
    if is_incomplete:
        parts.append("the calls were not compared to the end")
    yield Summary(f"{', '.join(parts)}.", None if report.ok and is_incomplete else report.ok, "!")


def _held_grid(held: Sequence[Held], sign: Signs, width: int) -> Grid:
    """Return a table of what ranks hold before and after a call, a row per rank."""
    names = ("Before", "After", "From")
    grid = Grid([Column("Rank", right=True), *map(Column, names)])
    for item in select(held, lambda _: False):
        if isinstance(item, int):
            texts = (sign.more, f"{item} more")
            grid.rows.append([Text(text, colours.QUIET) for text in texts])
            continue
        before = data_cells(item.before, sign, width).data
        after, source, _ = data_cells(item.after, sign, width)
        grid.rows.append([rank_cell(item.rank), before, after, source])
    return grid


def aligned(values: tuple[RanksText, ...]) -> str:
    """Return each value after its ranks, its further lines below its first."""
    labels = [rank_label(value.ranks) for value in values]
    width = max(map(len, labels))
    gap = "\n" + " " * (width + 2)
    return "\n".join(
        f"{label:{width}}  {value.text.replace(chr(10), gap)}"
        for label, value in zip(labels, values, strict=True)
    )
