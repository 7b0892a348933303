"""Tables in one style, which become lists on narrow terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
LEAST = 9  # columns that a folding column needs to be readable, including its frame
LISTED = 3  # highest drop order of the columns in a list
MANY = 16  # largest number of ranks of which all are shown
ENDS = 4  # ranks shown from each end of more than that

Cell = Text | str


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
        beside: True if each line belongs to the same line of the column before. A list keeps them
            side by side.
    """

    name: str
    right: bool = False
    folds: bool = False
    drop_order: int = 0
    beside: bool = False


@dataclass(slots=True)
class Grid:
    """Columns and rows; a row's first cell is its name.

    Attributes:
        matrix: True for many narrow columns: no lines are between them, and if they don't fit,
            several tables share them.
    """

    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    matrix: bool = False

    def up_to(self, drop_order: int) -> Grid:
        """Return the grid without the columns that have a higher drop order."""
        kept = [i for i, column in enumerate(self.columns) if column.drop_order <= drop_order]
        rows = [[row[index] for index in kept if index < len(row)] for row in self.rows]
        return Grid([self.columns[index] for index in kept], rows, self.matrix)

    def table(self) -> Table:
        """Return the grid as a table."""
        table = empty_table()
        if self.matrix:
            table.box = box.SIMPLE_HEAD
            table.show_edge = False
            table.pad_edge = False
            table.padding = (0, 1, 0, 0)
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
            table.add_row(*row)
        return table

    def split(self, parts: int) -> list[Grid]:
        """Return grids that share the columns: the first column and a part of the rest each.

        Rows that are empty in these columns are left out.
        """
        count = -(-(len(self.columns) - 1) // parts)
        shares = [slice(first, first + count) for first in range(1, len(self.columns), count)]
        return [
            Grid(
                [self.columns[0], *self.columns[share]],
                [[row[0], *row[share]] for row in self.rows if any(row[share])],
                self.matrix,
            )
            for share in shares
        ]

    def lines(self) -> Group:
        """Return the grid as a list: per row a heading, and below it a line per cell."""
        parts: list[RenderableType] = []
        for row in self.rows:
            head = Text(f"{self.columns[0].name} ".lstrip(), style="bold")
            parts.append(head + _text(row[0]))
            for name, *texts in self._entries(row):
                cells = Table.grid(padding=(0, 2, 0, 0))
                cells.add_column(style=colours.QUIET, no_wrap=True, min_width=_indent(self) - 2)
                for _ in texts:
                    cells.add_column(overflow="fold")
                cells.add_row(f"  {name}", *texts)
                parts.append(cells)
        return Group(*parts)

    def _entries(self, row: Sequence[Cell]) -> list[list[Cell]]:
        """Return the name and the cell, or the cells side by side, of each entry in a list."""
        entries: list[list[Cell]] = []
        for name, column, cell in zip(self.names()[1:], self.columns[1:], row[1:], strict=False):
            if column.beside and entries:
                entries[-1] = [name, *entries[-1][1:], cell]
            elif _text(cell).plain:
                entries.append([name, cell])
        return entries

    def names(self) -> list[str]:
        """Return the columns' names in a list: ``After``, ``After, from``."""
        names: list[str] = []
        for column in self.columns:
            name = column.name.replace("\n", " ")
            names.append(f"{names[-1]}, {name.lower()}".rstrip(", ") if column.beside else name)
        return names


def fitting(console: Console, draw: Callable[[int], Grid]) -> Table | Group:
    """Return the widest of a grid's tables that fits the console, or else the list.

    Args:
        console: Console to print on.
        draw: Function that returns the grid for a maximal width of a tensor's cell.
    """
    for width in WIDTHS:
        grid = draw(width)
        for most in sorted({column.drop_order for column in grid.columns}, reverse=True):
            table = grid.up_to(most).table()
            if full_width(console, table) <= console.width:
                return table
    for parts in range(2, len(grid.columns)) if grid.matrix else ():
        tables = [part.table() for part in grid.split(parts)]
        if all(full_width(console, table) <= console.width for table in tables):
            return Group(*[part for table in tables for part in (Text(), table)][1:])
    # Other columns would be truncated, which turns a number into another one.
    if console.width >= NARROW and _folds_well(console, grid):
        return table
    room = console.width - _indent(grid)
    for index, column in enumerate(grid.columns):
        if column.beside:
            cells = [_text(row[index]) for row in grid.rows if row[index:]]
            room -= max((console.measure(cell).maximum for cell in cells), default=0) + 2
    return draw(room).up_to(LISTED).lines()


def _folds_well(console: Console, grid: Grid) -> bool:
    """Return True if the columns that fold would be wide enough to be readable."""
    rigid = [index for index, column in enumerate(grid.columns) if not column.folds]
    rest = Grid(
        [grid.columns[index] for index in rigid],
        [[row[index] for index in rigid if index < len(row)] for row in grid.rows],
    )
    folding = len(grid.columns) - len(rigid)
    return folding > 0 and full_width(console, rest.table()) + folding * LEAST <= console.width


def full_width(console: Console, table: Table) -> int:
    """Return a table's full width."""
    unlimited = console.options.update(width=UNLIMITED)
    return console.measure(table, options=unlimited).maximum


def _indent(grid: Grid) -> int:
    """Return the indent of a cell's text in a list: the longest name, and two on each side."""
    return max(map(len, grid.names())) + 4


def _text(cell: Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


class Ranked(Protocol):
    """Anything that belongs to a rank."""

    @property
    def rank(self) -> int:
        """Rank that it belongs to."""


Item = TypeVar("Item", bound=Ranked)


def select(
    items: Sequence[Item], ranks: frozenset[int] | None, always_shown: Callable[[Item], bool]
) -> Iterator[Item | int]:
    """Yield the items to show, and between them the number left out.

    Args:
        items: One item per rank, in order.
        ranks: Ranks to show, or None for the default.
        always_shown: Function that returns True for items to show in any case.
    """
    if ranks is not None:
        yield from (item for item in items if item.rank in ranks)
        return
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
