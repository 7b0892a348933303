"""What every rank holds: a table of ranks × chunks, as roomy as the terminal allows, or a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.trace import view_listing as listing
from distdemo.trace.view_cells import Look, Parts, parts
from distdemo.trace.view_frames import Frame
from distdemo.trace.view_listing import Held
from distdemo.view import colours
from distdemo.view.frame import frame as empty_table
from distdemo.view.selection import select

RANK = "Rank"


@dataclass(frozen=True, slots=True)
class Form:
    """How much of a cell is shown.

    Attributes:
        bar: the bar of contributions.
        numbers: how many of a chunk's numbers.
        tight: no blanks around cells.
    """

    bar: bool
    numbers: int
    tight: bool = False


FORMS = (
    Form(bar=True, numbers=4),
    Form(bar=False, numbers=4),
    Form(bar=True, numbers=1),
    Form(bar=False, numbers=1),
    Form(bar=False, numbers=1, tight=True),
    Form(bar=True, numbers=0, tight=True),
    Form(bar=False, numbers=0, tight=True),
)
"""From the roomiest on; where none fits, it becomes a list."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Columns that the parts of one chunk's cells need: marks, bar, words, value."""

    mark: int
    bar: int
    words: int
    value: int

    @property
    def all(self) -> int:
        """With a blank between two parts."""
        filled = [each for each in (self.bar, self.words, self.value) if each]
        return self.mark + sum(filled) + max(0, len(filled) - 1)


class Board:
    """Draws what all hold after a round, in columns that stay where they are in all rounds.

    Args:
        look: of the trace.
        frames: all that will be drawn.
        rows: ranks to show, and between them how many are left out.
        width: columns of the terminal.

    Attributes:
        form: of the cells; None: it is a list.
    """

    def __init__(
        self, look: Look, frames: Sequence[Frame], rows: Sequence[Held | int], width: int
    ) -> None:
        self._look, self._frames, self._rows, self._width = look, frames, rows, width
        self._ranks = [row.rank for row in rows if isinstance(row, Held)]
        self._widths: list[Widths] = []
        self.form = next((form for form in FORMS if self._fits(form)), None)

    def draw(self, frame: Frame) -> RenderableType:
        """After this round."""
        if self.form is None:
            return listing.listing(self._look, frame, self._rows, self._width)
        table = self._empty(self.form)
        for row in self._rows:
            if isinstance(row, int):
                table.add_row(self._look.sign.more)
                continue
            found = (self._parts(self.form, frame, row.rank, at) for at in self._chunks)
            cells = (_put(each, widths) for each, widths in zip(found, self._widths, strict=True))
            table.add_row(Text(str(row.rank), style=colours.of_rank(row.rank)), *cells)
        left_out = sum(row for row in self._rows if isinstance(row, int))
        if not left_out:
            return table
        return Group(table, listing.more(self._look, left_out))

    @property
    def _chunks(self) -> range:
        return range(len(self._look.names))

    def _fits(self, form: Form) -> bool:
        """Whether there is room; the widths are remembered."""
        if self._look.named or (form.bar and not self._look.reduced):
            return False
        around = 1 if form.tight else 3
        room = self._width - 1 - around - len(RANK)
        least = around + (2 + self._look.n if form.bar else 2)
        self._widths = []
        for chunk in self._chunks:
            if room < least * (len(self._chunks) - chunk):
                return False
            self._widths.append(self._widest(form, chunk))
            room -= around + max(self._widths[-1].all, len(self._head(form, chunk)))
        return room >= 0

    def _widest(self, form: Form, chunk: int) -> Widths:
        found = [
            self._parts(form, frame, rank, chunk) for frame in self._frames for rank in self._ranks
        ]
        bar, words, value = (
            max((getattr(each, name).cell_len for each in found), default=0)
            for name in ("bar", "words", "value")
        )
        return Widths(1 if form.tight else 2, bar, words, value)

    def _parts(self, form: Form, frame: Frame, rank: int, chunk: int) -> Parts:
        found = parts(self._look, frame, rank, chunk, form.numbers)
        return found if form.bar else replace(found, bar=Text())

    def _head(self, form: Form, chunk: int) -> str:
        name = self._look.names[chunk]
        return name if form.tight else f"chunk {name}"

    def _empty(self, form: Form) -> Table:
        table = empty_table()
        if form.tight:
            table.padding = (0, 0)
        table.add_column(RANK, justify="right", no_wrap=True)
        for chunk, widths in zip(self._chunks, self._widths, strict=True):
            lead = " " * widths.mark
            head = self._head(form, chunk)
            roomy = widths.all >= len(lead) + len(head)
            table.add_column(lead + head if roomy else head, no_wrap=True, min_width=widths.all)
        return table


def _put(cell: Parts, widths: Widths) -> Text:
    """The parts beside each other, numbers at the right."""
    put = Text.assemble(cell.mark, " " * (widths.mark - cell.mark.cell_len))
    drawn = [
        _filled(part, width, right=right)
        for part, width, right in (
            (cell.bar, widths.bar, False),
            (cell.words, widths.words, False),
            (cell.value, widths.value, True),
        )
        if width
    ]
    return put + Text(" ").join(drawn)


def _filled(part: Text, width: int, *, right: bool) -> Text:
    blank = " " * (width - part.cell_len)
    return Text(blank) + part if right else part + Text(blank)


def rows_of(n: int, ranks: frozenset[int] | None, odd: frozenset[int]) -> list[Held | int]:
    """The ranks to show: those asked for; else all of up to 16, or both ends and the odd ones."""
    return list(select([Held(rank) for rank in range(n)], ranks, lambda row: row.rank in odd))
