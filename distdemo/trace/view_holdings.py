"""What every rank holds: a table of ranks × chunks, as roomy as the terminal allows, or a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from distdemo.trace.view_cells import Frame, Look, Parts, chunk_names, flow, parts
from distdemo.view import colours
from distdemo.view.format import plural
from distdemo.view.tables import frame as empty_table
from distdemo.view.tables import select

RANK = "Rank"
FEW = 8  # chunks up to which all that a rank holds are listed


@dataclass(frozen=True, slots=True)
class Shown:
    """A rank that is shown."""

    rank: int


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
    """Columns that the parts of one chunk's cells need."""

    mark: int
    bar: int
    words: int
    value: int

    @property
    def all(self) -> int:
        """With a blank between two parts."""
        filled = [each for each in (self.bar, self.words, self.value) if each]
        return self.mark + sum(filled) + max(0, len(filled) - 1)


class HoldingsView:
    """Draws what all hold after a round, in columns that stay where they are in all rounds.

    Args:
        look: of the trace.
        frames: all that will be drawn.
        ranks: those to show; None: all of up to 16, or both ends and those with wrong chunks.
        width: columns of the terminal.

    Attributes:
        form: of the cells; None: it is a list.
        shown: the ranks that are shown.
    """

    def __init__(
        self, look: Look, frames: Sequence[Frame], ranks: frozenset[int] | None, width: int
    ) -> None:
        self._look, self._frames, self._width = look, frames, width
        odd = {rank for rank, _ in look.wrong}
        every = [Shown(rank) for rank in range(look.n)]
        self._rows = list(select(every, ranks, lambda row: row.rank in odd))
        self.shown = frozenset(row.rank for row in self._rows if isinstance(row, Shown))
        self._widths: list[Widths] = []
        self.form = next((form for form in FORMS if self._fits(form)), None)

    def draw(self, frame: Frame) -> RenderableType:
        """After this round."""
        if self.form is None:
            return self._list(frame)
        table = empty_table()
        table.padding = (0, 0) if self.form.tight else table.padding
        table.add_column(RANK, justify="right", no_wrap=True)
        for chunk, widths in enumerate(self._widths):
            lead, head = " " * widths.mark, self._head(self.form, chunk)
            roomy = widths.all >= len(lead) + len(head)
            table.add_column(lead + head if roomy else head, no_wrap=True, min_width=widths.all)
        left_out = 0
        for row in self._rows:
            if isinstance(row, int):
                table.add_row(self._look.sign.more)
                left_out += row
                continue
            found = (self._parts(self.form, frame, row.rank, at) for at in range(len(self._widths)))
            cells = (_put(each, widths) for each, widths in zip(found, self._widths, strict=True))
            table.add_row(Text(str(row.rank), style=colours.of_rank(row.rank)), *cells)
        return Group(table, self._more(left_out)) if left_out else table

    def _more(self, count: int) -> Text:
        return Text(f"{self._look.sign.more} {plural(count, 'rank')} more", style=colours.QUIET)

    def _fits(self, form: Form) -> bool:
        """Whether there is room; the widths are remembered."""
        if self._look.named or (form.bar and not self._look.reduced):
            return False
        around = 1 if form.tight else 3
        room = self._width - 1 - around - len(RANK)
        least = around + (2 + self._look.n if form.bar else 2)
        self._widths = []
        chunks = len(self._look.names)
        for chunk in range(chunks):
            if room < least * (chunks - chunk):
                return False
            found = [
                self._parts(form, frame, rank, chunk)
                for frame in self._frames
                for rank in self.shown
            ]
            bar, words, value = (
                max((getattr(each, name).cell_len for each in found), default=0)
                for name in ("bar", "words", "value")
            )
            self._widths.append(Widths(1 if form.tight else 2, bar, words, value))
            room -= around + max(self._widths[-1].all, len(self._head(form, chunk)))
        return room >= 0

    def _parts(self, form: Form, frame: Frame, rank: int, chunk: int) -> Parts:
        found = parts(self._look, frame, rank, chunk, form.numbers)
        return found if form.bar else replace(found, bar=Text())

    def _head(self, form: Form, chunk: int) -> str:
        name = self._look.names[chunk]
        return name if form.tight else f"chunk {name}"

    # ---------------------------------------------------------------------------------- as a list

    def _list(self, frame: Frame) -> Group:
        """One rank after the other: all its chunks; of many those that changed or are complete."""
        items = {rank: list(self._items(frame, rank)) for rank in self.shown}
        first = max((each[0].cell_len for each in items.values() if each), default=0)
        lines: list[Text] = []
        for row in self._rows:
            if isinstance(row, int):
                lines.append(self._more(row))
                continue
            told, style = items[row.rank], f"bold {colours.of_rank(row.rank)}"
            head = Text.assemble(("rank ", "bold"), (str(row.rank), style))
            head.pad_right(len(f"rank {self._look.n - 1}") - head.cell_len)
            if not told:
                lines.append(head + Text("  nothing", style=colours.QUIET))
                continue
            if len(told) > 1:
                told[0].pad_right(first - told[0].cell_len)
            found = flow(told, self._width, indent=head.cell_len + 2, gap=2)
            lines += [head + found[0][head.cell_len :], *found[1:]]
        return Group(*lines)

    def _items(self, frame: Frame, rank: int) -> Iterator[Text]:
        look, held = self._look, frame.held[rank]
        missed = [
            chunk
            for chunk in range(len(look.names))
            if chunk not in held and look.is_wrong(rank, chunk, frame.number)
        ]
        few = len(held) <= FEW
        told = {*missed, *(held if few else (c for c in held if (rank, c) in frame.changed))}
        for chunk in sorted(told):
            yield self._item(frame, rank, chunk)
        if not few:  # those that this round did not change
            complete = [chunk for chunk, cell in sorted(held.items()) if cell.complete]
            if complete:
                names = "all" if len(complete) == len(look.names) else chunk_names(look, complete)
                # Where nothing is reduced a chunk is complete wherever it is held.
                words, style = ("complete", colours.RIGHT) if look.reduced else ("holds", "")
                yield Text.assemble(f"{words}: ", (names, f"bold {style}".strip()))
            others = [each for each in held if each not in told and not held[each].complete]
            own = sum(held[chunk].ranks == (rank,) for chunk in others)
            if own:
                yield Text(f"{plural(own, 'chunk')} of its own", style=colours.QUIET)
            if len(others) > own:
                yield Text(f"{plural(len(others) - own, 'chunk')} of several", style=colours.QUIET)
        gone = sorted(chunk for owner, chunk in frame.gone if owner == rank)
        if gone:
            yield Text(f"gone: {chunk_names(look, gone)}", style=colours.QUIET)

    def _item(self, frame: Frame, rank: int, chunk: int) -> Text:
        """``+1: 0–2 (33)``; of a chunk with a name of its own ``0→1 ✓ (3)``."""
        look = self._look
        found = parts(look, frame, rank, chunk, 1)
        source = frame.held[rank][chunk].ranks if look.named and chunk in frame.held[rank] else ()
        style = colours.of_rank(source[0]) if source else ""
        name = (look.names[chunk] + ("" if look.named else ":"), style)
        value = Text.assemble("(", found.value, ")") if found.value else Text()
        told = (Text.assemble(found.mark, name), found.words, value)
        return Text(" ").join([each for each in told if each.plain])


def _put(cell: Parts, widths: Widths) -> Text:
    """The parts beside each other, numbers at the right."""
    put = Text.assemble(cell.mark, " " * (widths.mark - cell.mark.cell_len))
    drawn = []
    for part, width in ((cell.bar, widths.bar), (cell.words, widths.words)):
        if width:
            drawn.append(part + Text(" " * (width - part.cell_len)))
    if widths.value:
        drawn.append(Text(" " * (widths.value - cell.value.cell_len)) + cell.value)
    return put + Text(" ").join(drawn)
