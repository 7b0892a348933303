"""Draw a trace in the terminal: the messages of each round and every rank's chunks after it.

Every colour comes with a word or a sign. A cell such as ``+ ██░█ 44 ✓`` has the change in this
round, a block per rank, its values, and ✓ if it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.schedules.schedule import Transfer
from distdemo.trace.records import HeldChunk, PlayedRound, TraceReport
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.format import number, plural, ranges
from distdemo.view.tables import FRAME, empty_table, select

FEW_NAMES = 6  # largest number of named chunks of a message of which all names are shown
FEW_CHUNKS = 8  # largest number of chunks of a rank of which all are listed
NARROWEST = 37  # columns of a round: two fit 80 columns, three 120, four 160
GAP = 4  # columns between two rounds
ADDED, RECEIVED, ABSENT = "+", "▸", "—"
"""Signs before a cell: combined or received in this round. Sign instead of a cell: not held."""
CONTENTS = {"held": "its ", "original": "its original ", "last": "the last received "}
VERSIONS = {"held": "", "original": "own", "last": "last"}
"""Versions of a chunk that is sent, in a sentence and on an arrow."""


class Form(NamedTuple):
    """Form of a table's cells.

    Attributes:
        has_bars: True if a cell has a block per rank whose data it contains.
        whole: True if it has all recorded values, False if it has the first one.
        gap: Space between its parts.
    """

    has_bars: bool
    whole: bool
    gap: str = " "


SHORTEST = Form(has_bars=False, whole=False, gap="")
FORMS = (
    Form(has_bars=True, whole=True),
    Form(has_bars=True, whole=False),
    Form(has_bars=False, whole=True),
    Form(has_bars=False, whole=True, gap=""),
    SHORTEST,
)
"""Forms in the order in which they are tried."""


class Frame(NamedTuple):
    """State of all ranks after a round.

    Attributes:
        round: Round; number 0 is the start.
        held: Each rank's cells, by chunk.
        changed: Signs of this round's changes, by rank and chunk.
    """

    round: PlayedRound
    held: tuple[dict[int, HeldChunk], ...]
    changed: dict[tuple[int, int], str]


def _frames(report: TraceReport) -> list[Frame]:
    """Return the frames of the start and of each round."""
    start = PlayedRound(0, "", (), gone=((),) * report.n)
    frames = []
    for played, held in zip((start, *report.rounds), report.states(), strict=True):
        changed = {
            (transfer.dst, chunk): ADDED if transfer.reduce else RECEIVED
            for transfer in played.transfers
            for chunk in transfer.chunks
            if report.chunk_elements[chunk]
        }
        frames.append(Frame(played, held, changed))
    return frames


class RankRow(NamedTuple):
    """Row of one rank."""

    rank: int


class Picture:
    """Picture of a trace on one console, with the same columns in every round.

    Of more than 16 ranks, both ends and those with errors are shown.

    Args:
        report: Report of the trace.
        console: Console to draw on; its width and encoding matter.

    Attributes:
        frames: Frames of the start and of each round.
    """

    def __init__(self, report: TraceReport, console: Console) -> None:
        self.frames = _frames(report)
        self._report = report
        self._sign = signs(console)
        self._width = console.width
        self._n = report.n
        self._names = report.chunk_names
        self._named = any(name != str(place) for place, name in enumerate(self._names))
        self._wanted = {(rank, c) for rank, chunks in enumerate(report.wanted) for c in chunks}
        rows = [RankRow(rank) for rank in range(self._n)]
        self._rows = list(select(rows, lambda row: row.rank in report.wrong_ranks))
        self._shown = frozenset(row.rank for row in self._rows if isinstance(row, RankRow))
        self._has_bars = report.op.reduce_op is not None and self._n > 1
        self._form, self._widths = self._choose()
        self._frame_width = self._width
        if self._widths:
            self._frame_width = min(self._width, max(NARROWEST, _table_width(self._widths)))

    def draw(self) -> Group:
        """Return the legend and the frames, as many side by side as fit."""
        columns = max(1, (self._width + GAP) // (self._frame_width + GAP))
        grid = Table.grid(padding=(0, GAP, 0, 0))
        for _ in range(columns):
            grid.add_column(min_width=self._frame_width, vertical="bottom")
        for start in range(0, len(self.frames), columns):
            row = self.frames[start : start + columns]
            grid.add_row(*(Group(*self.draw_frame(frame), Text()) for frame in row))
        return Group(self.draw_legend(), Text(), grid)

    def draw_legend(self) -> Group:
        """Return a table that explains the signs in use, and what else shows what has no room."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold", style=colours.QUIET)
        for sign, meaning in self._legend_rows():
            grid.add_row(sign, meaning)
        if self._widths and self._form.has_bars == self._has_bars:
            return Group(grid)
        what = "every chunk" if self._named else "every chunk, and whose data it contains"
        return Group(grid, Text(f"--output trace.html draws {what}.", style=colours.QUIET))

    def _legend_rows(self) -> Iterator[tuple[Text, str]]:
        """Yield each sign in use with its meaning; the first arrow of each kind is an example."""
        examples: dict[tuple[bool, str], Transfer] = {}
        for transfer in (t for frame in self.frames for t in frame.round.transfers if t.elements):
            examples.setdefault((transfer.reduce, transfer.content), transfer)
        for transfer in examples.values():
            names = self._chunk_names(transfer.chunks)
            noun = "tensor" if not names else "chunk" if len(transfer.chunks) == 1 else "chunks"
            what = f"{CONTENTS[transfer.content]}{noun} {names}".rstrip()
            effect = "stored as received"
            if transfer.reduce:
                effect = "combined with the receiver's data"
            yield self._arrow(transfer), f"rank {transfer.src} sends {what}, {effect}"
        signs_in_use = {sign for frame in self.frames for sign in frame.changed.values()}
        for sign, meaning in ((ADDED, "combined"), (RECEIVED, "received")):
            if sign in signs_in_use:
                yield Text(sign, style="bold"), f"{meaning} in this round"
        if self._form.has_bars:
            yield self._bar((0,)), "data of rank 0 alone: there is a block for each rank"
        places = len(self._names)
        if self._widths and any(len(held) < places > 1 for f in self.frames for held in f.held):
            yield Text(ABSENT, style=colours.QUIET), "not held"
        right = Text(self._sign.right, style=colours.RIGHT)
        yield right, "complete, and this rank needs it at the end"

    # -------------------------------------------------------------------------------- one round

    def draw_frame(self, frame: Frame) -> Iterator[RenderableType]:
        """Yield the title, the messages and the chunks of every rank."""
        title = "Before the first round"
        if frame.round.number:
            title = f"Round {frame.round.number} of {len(self._report.rounds)}"
        phase = f" {self._sign.dot} {frame.round.phase}" if frame.round.phase else ""
        yield Text(title + phase, style="bold")
        if frame.round.number:
            yield self._arrows(frame.round.transfers)
        yield from self._table(frame) if self._widths else self._list(frame)

    def _rank(self, rank: int, frame: Frame) -> Text:
        """Return the rank's number, after the last round with a sign if its result is wrong."""
        text = Text(str(rank), style=colours.of_rank(rank))
        if frame is self.frames[-1] and rank in self._report.wrong_ranks:
            text.append(f" {self._sign.wrong}", colours.WRONG)
        return text

    def _cell(self, frame: Frame, rank: int, chunk: int, form: Form) -> tuple[Text, Text, Text]:
        """Return the bar of a cell, its values, and its mark."""
        cell = frame.held[rank].get(chunk)
        if cell is None:
            absent = "nothing" if len(self._names) == 1 else ABSENT
            text = "gone" if chunk in frame.round.gone[rank] else absent
            return Text(), Text(text, colours.QUIET), Text()
        elements = self._report.chunk_elements[chunk]
        if not elements:
            return Text(), Text("empty", colours.QUIET), Text()
        bar = self._bar(cell.ranks) if form.has_bars else Text()
        shown = cell.values if form.whole else cell.values[:1]
        numbers = [value if isinstance(value, str) else number(value) for value in shown]
        numbers += [self._sign.more] if len(shown) < elements else []
        style = colours.of_rank(cell.ranks[0]) if len(cell.ranks) == 1 else ""
        is_final = cell.complete and (rank, chunk) in self._wanted
        mark = Text(self._sign.right if is_final else "", colours.RIGHT)
        return bar, Text(" ".join(numbers), style), mark

    def _bar(self, ranks: Sequence[int]) -> Text:
        """Return one block per rank, in its colour if it contributed."""
        bar = Text()
        for rank in range(self._n):
            contributes = rank in ranks
            style = colours.of_rank(rank) if contributes else colours.QUIET
            bar.append("█" if contributes else "░", style)
        return bar

    # -------------------------------------------------------------------------------- as a table

    def _choose(self) -> tuple[Form, list[int]]:
        """Return the first form that fits, and the width of each chunk's column in all rounds.

        If no form fits, or if chunks have names, there are no columns but a list per rank.
        """
        if not self._named and 4 * len(self._names) <= self._width:
            for form in (form for form in FORMS if self._has_bars >= form.has_bars):
                widths = [self._column_width(chunk, form) for chunk in range(len(self._names))]
                if _table_width(widths) <= self._width:
                    return form, widths
        return SHORTEST, []

    def _column_width(self, chunk: int, form: Form) -> int:
        cells = [
            self._table_cell(f, rank, chunk, form) for f in self.frames for rank in self._shown
        ]
        return max(len(self._heading(chunk, form)), *(cell.cell_len for cell in cells))

    def _heading(self, chunk: int, form: Form) -> str:
        """Return ``chunk 2``, or where there is little room ``[2]`` as on the arrows."""
        if len(self._names) == 1:
            return "tensor"
        return f"chunk {self._names[chunk]}" if form.gap else f"[{self._names[chunk]}]"

    def _table(self, frame: Frame) -> Iterator[RenderableType]:
        """Yield the table of ranks and chunks, and the number of ranks left out."""
        table = empty_table()
        table.add_column("Rank", justify="right", no_wrap=True)
        for chunk, width in enumerate(self._widths):
            table.add_column(self._heading(chunk, self._form), no_wrap=True, min_width=width)
        omitted = 0
        for row in self._rows:
            if isinstance(row, int):
                table.add_row(self._sign.more)
                omitted += row
                continue
            cells = [
                self._table_cell(frame, row.rank, chunk, self._form, width)
                for chunk, width in enumerate(self._widths)
            ]
            table.add_row(self._rank(row.rank, frame), *cells)
        yield table
        if omitted:
            yield self._omitted(omitted, "rank")

    def _table_cell(self, frame: Frame, rank: int, chunk: int, form: Form, width: int = 0) -> Text:
        """Return a cell such as ``+ █░██ 56 ✓``, its values right-aligned in this width."""
        bar, values, mark = self._cell(frame, rank, chunk, form)
        head = Text.assemble((f"{frame.changed.get((rank, chunk), ''):1}{form.gap}", "bold"))
        if chunk not in frame.held[rank]:
            return head + values
        if bar:
            head += bar + form.gap
        mark.pad_right(len(self._sign.right) - mark.cell_len)
        tail = values + form.gap + mark
        head.pad_right(width - head.cell_len - tail.cell_len)
        return head + tail

    def _omitted(self, count: int, noun: str) -> Text:
        return Text(f"{self._sign.more} {plural(count, f'more {noun}')}", style=colours.QUIET)

    # ---------------------------------------------------------------------------------- as a list

    def _list(self, frame: Frame) -> Iterator[Text]:
        """Yield a line per rank: the chunks that changed, or all if they have names and are few."""
        for row in self._rows:
            if isinstance(row, int):
                yield self._omitted(row, "rank")
                continue
            head = Text.assemble(("rank ", "bold"), self._rank(row.rank, frame))
            head.pad_right(len(f"rank {self._n - 1}") - head.cell_len)
            lines = _wrap(
                self._items(frame, row.rank), self._width, indent=head.cell_len + 2, gap=2
            )
            yield head + lines[0][head.cell_len :]
            yield from lines[1:]

    def _items(self, frame: Frame, rank: int) -> Iterator[Text]:
        held = sorted(frame.held[rank])
        if not held:
            yield Text("nothing", style=colours.QUIET)
        shows_all = self._named and len(held) <= FEW_CHUNKS
        for chunk in held:
            if shows_all or (rank, chunk) in frame.changed:
                yield self._item(frame, rank, chunk)
        complete = [chunk for chunk in held if frame.held[rank][chunk].complete]
        state, chunks = ("complete", complete) if frame.round.number else ("holds", held)
        if chunks and not shows_all:
            yield Text(f"{state}: {self._chunk_names(chunks)}", style=colours.QUIET)
        gone = frame.round.gone[rank]
        if gone:
            yield Text(f"gone: {self._chunk_names(gone)}", style=colours.QUIET)

    def _item(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return an item such as ``+1: 33``, or ``▸0→1: 3 ✓`` for a named chunk."""
        _, value, mark = self._cell(frame, rank, chunk, SHORTEST)
        style = colours.of_rank(frame.held[rank][chunk].ranks[0]) if self._named else ""
        sign = (frame.changed.get((rank, chunk), ""), "bold")
        head = Text.assemble(sign, (f"{self._names[chunk]}:", style))
        return Text(" ").join([part for part in (head, value, mark) if part])

    # ------------------------------------------------------------------------------------ messages

    def _arrows(self, transfers: Sequence[Transfer]) -> Text:
        """Return all non-empty messages from and to the shown ranks, wrapped into lines."""
        sent = [transfer for transfer in transfers if transfer.elements]
        arrows = [self._arrow(t) for t in sent if {t.src, t.dst} & self._shown]
        omitted = len(sent) - len(arrows)
        widest = max((arrow.cell_len for arrow in arrows), default=0)
        for arrow in arrows:
            arrow.pad_right(widest - arrow.cell_len)
        arrows += [self._omitted(omitted, "message")] if omitted else []
        return Text("\n").join(
            _wrap(arrows or [Text("no message")], self._frame_width, indent=2, gap=3)
        )

    def _arrow(self, transfer: Transfer) -> Text:
        """Return a message: ``0 ═[2]═▶ 1`` is combined, ``0 ─[2]─▶ 1`` replaces.

        If it isn't the chunk as it is held, the version is named: ``0 ═[last]═▶ 1``.
        """
        line = "═" if transfer.reduce else "─"
        names = f"{self._chunk_names(transfer.chunks)} {VERSIONS[transfer.content]}".strip()
        label = Text.assemble("[", (names, "bold"), "]") if names else Text(line)
        return Text.assemble(
            (str(transfer.src), colours.of_rank(transfer.src)),
            f" {line}",
            label,
            f"{line}▶ ",
            (str(transfer.dst), colours.of_rank(transfer.dst)),
        )

    def _chunk_names(self, chunks: Sequence[int]) -> str:
        """Return ``0–3 5`` or ``0→1 2→1``; many named chunks are counted, a single one has none."""
        if len(self._names) == 1:
            return ""
        if not self._named:
            return _ranges_text(chunks if len(chunks) < 3 else sorted(chunks))
        if len(chunks) <= FEW_NAMES:
            return " ".join(self._names[chunk] for chunk in chunks)
        return f"{self._names[chunks[0]]} {self._sign.more} {len(chunks)} chunks"


def _table_width(widths: Sequence[int]) -> int:
    return len("│ Rank │") + sum(width + FRAME for width in widths)


def _ranges_text(numbers: Sequence[int]) -> str:
    """Return ``0 1 3`` or ``0–3 5``."""
    parts = [
        str(first) if first == last else f"{first}{'–' if last - first > 1 else ' '}{last}"
        for first, last in ranges(numbers)
    ]
    return " ".join(parts)


def _wrap(items: Iterable[Text], width: int, indent: int, gap: int) -> list[Text]:
    """Wrap items into indented lines of this width."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + gap + item.cell_len <= width:
            lines[-1] = lines[-1] + Text(" " * gap) + item
        else:
            lines.append(Text(" " * indent) + item)
    for line in lines:
        line.rstrip()
    return lines
