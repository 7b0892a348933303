"""Tables in one style, which become lists on narrow terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.view import colours

WIDTHS = (60, 28, 22, 17, 12, 0)
"""Maximal widths of a tensor's cell, in the order in which they are tried."""
UNLIMITED = 10_000  # columns, to measure a table's full width
NARROW = 60  # columns; on a narrower terminal, a table that doesn't fit becomes a list
FRAME = 3  # columns around a cell
LONG_WORD = 14  # letters; only longer words, such as paths, are broken
LISTED = 3  # highest drop order of the columns in a list
MANY = 16  # largest number of ranks of which all are shown
ENDS = 4  # ranks shown from each end of more than that

Cell = Text | str
Row = TypeVar("Row")


def empty_table() -> Table:
    """Return an empty table in the common style; the caller adds columns."""
    return Table(
        box=box.ROUNDED,
        header_style="bold",
        border_style="dim",
        pad_edge=True,
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Column heading.
        right: True to align cells at the right.
        folds: True if long cells may wrap.
        drop_order: Priority for dropping the column if the table is too wide, highest first; 0 for
            never.
        is_detail: True if only ``--verbose`` prints it.
    """

    name: str
    right: bool = False
    folds: bool = False
    drop_order: int = 0
    is_detail: bool = False


@dataclass(slots=True)
class Grid:
    """Columns and rows; a row's first cell is its name."""

    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)

    def up_to(self, drop_order: int) -> Grid:
        """Return the grid without the columns that have a higher drop order."""
        return self._where(lambda column: column.drop_order <= drop_order)

    def without_details(self) -> Grid:
        """Return the grid without the columns that only ``--verbose`` prints."""
        return self._where(lambda column: not column.is_detail)

    def _where(self, is_kept: Callable[[Column], bool]) -> Grid:
        kept = [index for index, column in enumerate(self.columns) if is_kept(column)]
        rows = [[row[index] for index in kept if index < len(row)] for row in self.rows]
        return Grid([self.columns[index] for index in kept], rows)

    def table(self) -> Table:
        """Return the grid as a table."""
        table = empty_table()
        for column in self.columns:
            justify = "right" if column.right else "left"
            overflow = "fold" if column.folds else "ellipsis"
            table.add_column(
                column.name,
                justify=justify,  # type: ignore[arg-type]  # one of rich's literals
                overflow=overflow,  # type: ignore[arg-type]  # likewise
                no_wrap=not column.folds,
            )
        for row in self.rows:
            assert len(row) <= len(self.columns), "a row has more cells than there are columns"
            table.add_row(*row)
        return table

    def lines(self) -> Group:
        """Return the grid as a list: per row a heading, and below it a line per cell."""
        names = [column.name.replace("\n", " ") for column in self.columns]
        parts: list[RenderableType] = []
        for row in self.rows:
            head = Text(f"{names[0]} ".lstrip(), style="bold")
            parts.append(head + _text(row[0]))
            for name, cell in zip(names[1:], row[1:], strict=False):
                if not _text(cell).plain:
                    continue
                cells = Table.grid(padding=(0, 2, 0, 0))
                cells.add_column(style=colours.QUIET, no_wrap=True, min_width=_indent(self) - 2)
                cells.add_column(overflow="fold")
                cells.add_row(f"  {name}", cell)
                parts.append(cells)
        return Group(*parts)


def grid_of(rows: Iterable[Row], *columns: tuple[Column, Callable[[Row], Cell]]) -> Grid:
    """Return a grid with a line per row; each column comes with the function of its cells."""
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return Grid([column for column, _ in columns], cells)


def fitting(console: Console, draw: Callable[[int], Grid]) -> Table | Group:
    """Return the widest of a grid's tables that fits the console, or else the list.

    Args:
        console: Console to print on.
        draw: Function that returns the grid for a maximal width of a tensor's cell.
    """
    for width in WIDTHS:
        whole = draw(width)
        for most in sorted({column.drop_order for column in whole.columns}, reverse=True):
            grid = whole.up_to(most)
            table = grid.table()
            if full_width(console, table) <= console.width:
                return table
    # Other columns would be truncated, which turns a number into another one.
    if console.width >= NARROW and _fold(console, grid, table):
        return table
    return draw(console.width - _indent(whole)).up_to(LISTED).lines()


def _fold(console: Console, grid: Grid, table: Table) -> bool:
    """Set the widths of the columns that fold; return False if that would break their words."""
    rigid = [index for index, column in enumerate(grid.columns) if not column.folds]
    rest = Grid(
        [grid.columns[index] for index in rigid],
        [[row[index] for index in rigid if index < len(row)] for row in grid.rows],
    )
    folding = [index for index, column in enumerate(grid.columns) if column.folds]
    least = {index: min(LONG_WORD, _widest(grid, index, str.split)) for index in folding}
    widths = {i: min(console.width, _widest(grid, i, str.splitlines)) for i in folding}
    room = console.width - full_width(console, rest.table()) - FRAME * len(folding)
    if not folding or sum(least.values()) > room:
        return False
    while sum(widths.values()) > room:
        widest = max((i for i in folding if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    for index, width in widths.items():
        table.columns[index].width = width
    return True


def _widest(grid: Grid, index: int, split: Callable[[str], list[str]]) -> int:
    """Return the width of the widest part of a column's cells: a word, or a line."""
    cells = [grid.columns[index].name, *(row[index] for row in grid.rows if index < len(row))]
    return max((len(part) for cell in cells for part in split(_text(cell).plain)), default=0)


def full_width(console: Console, table: Table) -> int:
    """Return a table's full width."""
    unlimited = console.options.update(width=UNLIMITED)
    return console.measure(table, options=unlimited).maximum


def _indent(grid: Grid) -> int:
    """Return the indent of a cell's text in a list: the longest name, and two on each side."""
    return max(len(column.name) for column in grid.columns) + 4


def _text(cell: Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


class Ranked(Protocol):
    """Anything that belongs to a rank."""

    @property
    def rank(self) -> int:
        """Rank that it belongs to."""


Item = TypeVar("Item", bound=Ranked)


def select(items: Sequence[Item], always_shown: Callable[[Item], bool]) -> Iterator[Item | int]:
    """Yield the items to show of many, and between them the number left out.

    Args:
        items: One item per rank, in order.
        always_shown: Function that returns True for items to show in any case.
    """
    skipped = 0
    for index, item in enumerate(items):
        at_end = index < ENDS or index >= len(items) - ENDS
        if len(items) <= MANY or at_end or always_shown(item):
            if skipped:
                yield skipped
            skipped = 0
            yield item
        else:
            skipped += 1
