"""Tables in the house's style, which become a plain list where the terminal is too narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.view import colours

ROOMS = (60, 28, 22, 17, 0)
"""Columns for one tensor: what most tables have, and steps of less."""
UNLIMITED = 10_000  # columns: to measure how wide a table would like to be
NARROW = 60  # columns of a terminal below which a table that does not fit becomes a list
LEAST = 9  # columns, its frame included, that one which folds needs to be readable
MANY = 16  # ranks up to which all are shown
ENDS = 4  # of more than that: these many from each end

Cell = Text | str


def frame() -> Table:
    """An empty table in the house's style; the caller adds columns."""
    return Table(
        box=box.ROUNDED,
        header_style="bold",
        border_style="dim",
        pad_edge=True,
    )


def heading(text: str) -> Text:
    """The line above a table."""
    return Text(text, style="bold")


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: its head.
        right: numbers stand at the right.
        folds: a long cell may be broken into lines.
    """

    name: str
    right: bool = False
    folds: bool = False


@dataclass(slots=True)
class Grid:
    """Columns and rows; a row's first cell names it."""

    columns: Sequence[Column]
    rows: list[list[Cell]] = field(default_factory=list)

    def table(self) -> Table:
        """As a table in the house's style."""
        table = frame()
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

    def lines(self) -> Group:
        """As a list: a heading a row, and under it a line a cell."""
        width = _lead(self) - 4
        parts: list[RenderableType] = []
        for row in self.rows:
            parts.append(_head(self.columns[0].name, row[0]))
            for column, cell in zip(self.columns[1:], row[1:], strict=False):
                parts += _entry(column.name.ljust(width), _text(cell))
        return Group(*parts)


def fitting(console: Console, draw: Callable[[int], Grid]) -> Table | Group:
    """The roomiest of a grid's tables that this console is wide enough for; else the list.

    Args:
        console: that it will be printed on.
        draw: makes the grid with so many columns for one tensor.
    """
    for room in ROOMS:
        grid = draw(room)
        table = grid.table()
        if widest(console, table) <= console.width:
            return table
    # A column that does not fold would be cut, and a number without its end is another number.
    if console.width >= NARROW and _folds_well(console, grid):
        return table
    return draw(console.width - _lead(grid)).lines()


def _folds_well(console: Console, grid: Grid) -> bool:
    """Whether the columns that fold are left with room to be read in."""
    rigid = [place for place, column in enumerate(grid.columns) if not column.folds]
    rest = Grid(
        [grid.columns[place] for place in rigid],
        [[row[place] for place in rigid if place < len(row)] for row in grid.rows],
    )
    folding = len(grid.columns) - len(rigid)
    return folding > 0 and widest(console, rest.table()) + folding * LEAST <= console.width


def widest(console: Console, table: Table) -> int:
    """How wide a table would like to be."""
    unlimited = console.options.update(width=UNLIMITED)
    return console.measure(table, options=unlimited).maximum


def _lead(grid: Grid) -> int:
    """How many columns of a list come before a cell's text: the names, and two at each side."""
    return max(len(column.name) for column in grid.columns) + 4


def _head(name: str, cell: Cell) -> Text:
    return Text(f"{name} ", style="bold") + _text(cell)


def _entry(name: str, cell: Text) -> list[Text]:
    """A cell's lines, the first with the column's name."""
    if not cell.plain:
        return []
    first, *rest = cell.split("\n")
    blank = " " * len(name)
    lead = Text(f"  {name}  ", style=colours.QUIET)
    return [lead + first, *(Text(f"  {blank}  ") + line for line in rest)]


def _text(cell: Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


class Ranked(Protocol):
    """Anything that belongs to a rank."""

    @property
    def rank(self) -> int:
        """The rank that it belongs to."""


Item = TypeVar("Item", bound=Ranked)


def select(
    items: Sequence[Item], ranks: frozenset[int] | None, is_odd: Callable[[Item], bool]
) -> Iterator[Item | int]:
    """The items to show, and between them how many were left out.

    Args:
        items: one a rank, in order.
        ranks: those that the user wants to see; None: the default choice.
        is_odd: whether an item must be shown wherever it stands.
    """
    if ranks is not None:
        yield from (item for item in items if item.rank in ranks)
        return
    skipped = 0
    for place, item in enumerate(items):
        at_end = place < ENDS or place >= len(items) - ENDS
        if len(items) <= MANY or at_end or is_odd(item):
            if skipped:
                yield skipped
            skipped = 0
            yield item
        else:
            skipped += 1
