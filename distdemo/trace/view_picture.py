"""Draw a trace in the terminal: the messages of each round and every rank's chunks after it.

Every colour comes with a word or a sign: ``+ ██░█ 0 1 3  44``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.schedules.schedule import Transfer
from distdemo.trace.records import HeldChunk, Moment, PlayedRound, TraceReport
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.format import duration, number, plural, ranges
from distdemo.view.tables import empty_table, select

FEW_NAMES = 6  # largest number of named chunks of a message of which all names are shown
FEW_CHUNKS = 8  # largest number of chunks of a rank of which all are listed
ALL_ROUNDS = 40  # largest number of rounds of which all are shown
ROUNDS_AT_ENDS = 2  # rounds shown at each end if there are more
ADDED, RECEIVED, ABSENT = "+", "▸", "—"
"""Signs before a cell: combined or received in this round. Sign instead of a cell: not held."""
CONTENTS = {
    "held": "",
    "original": " as it was before the first round",
    "last": " as it was last received",
}
Layout = Literal["bars", "plain", "list"]


class Frame(NamedTuple):
    """State of all ranks after a round.

    Attributes:
        round: Round; number 0 is the start.
        held: Each rank's cells, by chunk.
        changed: Changes of this round by rank and chunk: True if combined, False if replaced.
    """

    round: PlayedRound
    held: tuple[dict[int, HeldChunk], ...]
    changed: dict[tuple[int, int], bool]


def _frames(report: TraceReport) -> list[Frame]:
    """Return the frames of the start and of each round."""
    start = PlayedRound(0, "", (), gone=((),) * report.n)
    frames = []
    for played, held in zip((start, *report.rounds), report.states(), strict=True):
        changed = {(t.dst, c): t.reduce for t in played.transfers if t.elements for c in t.chunks}
        frames.append(Frame(played, held, changed))
    return frames


class RankRow(NamedTuple):
    """Row of one rank."""

    rank: int


class Picture:
    """Picture of a trace on one console, with the same columns in every round.

    Args:
        report: Report of the trace.
        console: Console to draw on; its width and encoding matter.
        ranks: Ranks to show. None: all of up to 16, otherwise both ends and those with errors.

    Attributes:
        frames: Frames of the start and of each round.
    """

    def __init__(
        self, report: TraceReport, console: Console, ranks: frozenset[int] | None = None
    ) -> None:
        self.frames = _frames(report)
        self._report = report
        self._sign = signs(console)
        self._width = console.width
        self._n = report.n
        self._names = report.chunk_names
        self._elements = report.chunk_elements
        self._reduced = report.op.reduce_op is not None
        self._named = any(name != str(place) for place, name in enumerate(self._names))
        self._wanted = {(rank, c) for rank, chunks in enumerate(report.wanted) for c in chunks}
        self._wrong = {(wrong.rank, wrong.chunk) for wrong in report.wrong}
        with_errors = {wrong.rank for wrong in report.wrong}
        every = [RankRow(rank) for rank in range(report.n)]
        self._rows = list(select(every, ranks, lambda row: row.rank in with_errors))
        self._shown = frozenset(row.rank for row in self._rows if isinstance(row, RankRow))
        self._widths: list[int] = []
        self._layout: Layout = "list"
        if not self._named and 4 * len(self._names) <= self._width:
            tables: tuple[Layout, ...] = ("bars", "plain") if self._reduced else ("plain",)
            self._layout = next((table for table in tables if self._fits(table)), "list")

    @property
    def is_table(self) -> bool:
        """True if the chunks are columns of a table, rather than a list per rank."""
        return self._layout != "list"

    # -------------------------------------------------------------------------------- all rounds

    def draw(self, *, every: bool = False) -> Group:
        """Return the legend and the frames, each followed by a blank line.

        Args:
            every: True to draw all rounds, however many there are.
        """
        parts: list[RenderableType] = [self.draw_legend(), Text()]
        shown = range(len(self.frames)) if every else self.default_rounds()
        for before, index in pairwise((-1, *shown)):
            if index > before + 1:
                omitted = f"Rounds {before + 1} to {index - 1} are omitted"
                hint = f"{omitted}; --output FILE.txt has all."
                parts += [Text(hint, style=colours.QUIET), Text()]
            parts += [*self.draw_frame(self.frames[index]), Text()]
        return Group(*parts)

    def draw_still(self, index: int) -> Iterator[RenderableType]:
        """Yield one frame with its chunks at the same height in each round; 0 is the start."""
        yield from self.draw_frame(self.frames[index], self._most_lines)

    @cached_property
    def _most_lines(self) -> int:
        """Return the number of lines that the messages of a round need, at most."""
        return max(_height(self._messages(frame)) for frame in self.frames)

    def default_rounds(self) -> list[int]:
        """Return the frames to draw: all, or of many the ends and the phase changes."""
        report, last = self._report, len(self.frames) - 1
        if last <= ALL_ROUNDS:
            return list(range(last + 1))
        shown = {*range(ROUNDS_AT_ENDS + 1), *range(last - ROUNDS_AT_ENDS + 1, last + 1)}
        for before, after in pairwise(report.rounds):
            if before.phase != after.phase:
                shown |= {before.number, after.number}
        return sorted(shown)

    def draw_legend(self) -> Table:
        """Return a table that explains the signs."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold", style=colours.QUIET)
        for sign, meaning in self._legend_rows():
            grid.add_row(sign, meaning)
        return grid

    def _legend_rows(self) -> Iterator[tuple[Text, str]]:
        """Yield each sign in use with its meaning; the first arrow of each kind is an example."""
        examples: dict[tuple[bool, str], Transfer] = {}
        for transfer in (t for frame in self.frames for t in frame.round.transfers if t.elements):
            examples.setdefault((transfer.reduce, transfer.content), transfer)
        for transfer in examples.values():
            what = f"chunk {self._chunk_names(transfer.chunks)}{CONTENTS[transfer.content]}"
            effect = (
                "combined with the receiver's data" if transfer.reduce else "stored as received"
            )
            yield self._arrow(transfer), f"rank {transfer.src} sends {what}, {effect}"
        some = tuple(rank for rank in range(self._n) if rank != 1)
        if self._reduced and len(some) > 1:
            bar = [self._bar(some)] if self._layout == "bars" else []
            example = Text(" ").join([*bar, _ranges_text(some)])
            yield example, "contributions of all ranks but rank 1, then the values so far"
            yield Text("all", style="bold"), "every rank's contribution"
        right = Text(self._sign.right, style=f"bold {colours.RIGHT}")
        everywhere = len(self._wanted) == self._n * len(self._names)
        yield right, "complete" if everywhere else "complete, and this rank needs it at the end"
        if any(len(held) < len(self._names) for frame in self.frames for held in frame.held):
            yield Text(ABSENT, style=colours.QUIET), "not held"
        if examples:
            changes = "combined in this round; received in this round"
            yield Text(f"{ADDED} {RECEIVED}", style="bold"), changes
        if self._report.wrong:
            yield Text(self._sign.wrong, style=colours.WRONG), "wrong"

    # -------------------------------------------------------------------------------- one round

    def draw_frame(self, frame: Frame, lines: int = 0) -> Iterator[RenderableType]:
        """Yield the title, the messages and the chunks of every rank.

        Args:
            frame: Frame to draw.
            lines: Minimum number of lines between title and chunks.
        """
        title = ["Before the first round"]
        if frame.round.number:
            title = [f"Round {frame.round.number} of {len(self._report.rounds)}", frame.round.phase]
            title.append(_times_text(frame.round.moments))
        yield Text(f" {self._sign.dot} ".join(filter(None, title)), style="bold")
        messages = self._messages(frame)
        yield from messages
        yield from [Text()] * (lines - _height(messages))
        yield from self._list(frame) if self._layout == "list" else self._table(frame)

    def _messages(self, frame: Frame) -> list[Text]:
        """Return the arrows of the round; none before the first one."""
        return [self._arrows(frame.round.transfers)] if frame.round.number else []

    # ------------------------------------------------------------------------------------- a cell

    def _mark(self, frame: Frame, rank: int, chunk: int) -> str:
        """Return the sign of this round's change of a chunk; empty if there is none."""
        combined = frame.changed.get((rank, chunk))
        if combined is None or chunk not in frame.held[rank] or not self._elements[chunk]:
            return ""
        return ADDED if combined else RECEIVED

    def _content(
        self, frame: Frame, rank: int, chunk: int, layout: Layout = "plain"
    ) -> tuple[Text, Text]:
        """Return the contributions in a chunk and its numbers; of more than 4 only the first."""
        cell = frame.held[rank].get(chunk)
        wrong = self._is_wrong(rank, chunk, frame)
        if cell is None:  # passed on in this round, missing, or never held
            gone = "gone" if chunk in frame.round.gone[rank] else ABSENT
            words = Text(self._sign.wrong, colours.WRONG) if wrong else Text(gone, colours.QUIET)
            return words, Text()
        if not self._elements[chunk]:
            return Text("empty", colours.QUIET), Text()
        parts = [self._bar(cell.ranks)] if layout == "bars" else []
        if cell.complete and self._reduced and self._n > 1:
            parts.append(Text("all", "bold"))
        elif not self._named:
            parts.append(_ranges_text(cell.ranks))
        if wrong:
            parts.append(Text(self._sign.wrong, colours.WRONG))
        elif cell.complete and (rank, chunk) in self._wanted:
            parts.append(Text(self._sign.right, f"bold {colours.RIGHT}"))
        value = Text()
        if cell.values:
            all_known = len(cell.values) == self._elements[chunk]
            shown = cell.values if all_known else cell.values[:1]
            numbers = [v if isinstance(v, str) else number(v) for v in shown]
            numbers += [] if all_known else [self._sign.more]
            style = colours.of_rank(cell.ranks[0]) if len(cell.ranks) == 1 else ""
            style = f"bold {style}".strip() if cell.complete else style
            value = Text(" ".join(numbers), style)
        return Text(" ").join(parts), value

    def _is_wrong(self, rank: int, chunk: int, frame: Frame) -> bool:
        """Return True after the last round if the rank's result is wrong in this chunk."""
        return frame is self.frames[-1] and (rank, chunk) in self._wrong

    def _bar(self, ranks: Sequence[int]) -> Text:
        """Return one block per rank in its colour; a number if it contributed more than once."""
        drawn = Text()
        for rank in range(self._n):
            times = ranks.count(rank)
            style = colours.of_rank(rank) if times else colours.QUIET
            if times > 1:
                drawn.append(str(min(times, 9)), colours.WRONG)
            else:
                drawn.append("█" if times else "░", style)
        return drawn

    # -------------------------------------------------------------------------------- as a table

    def _table(self, frame: Frame) -> Iterator[RenderableType]:
        """Yield the table of ranks and chunks, and the number of ranks left out."""
        table = empty_table()
        table.add_column("Rank", justify="right", no_wrap=True)
        for name, width in zip(self._names, self._widths, strict=True):
            table.add_column(f"chunk {name}", no_wrap=True, min_width=width)
        omitted = 0
        for row in self._rows:
            if isinstance(row, int):
                table.add_row(self._sign.more)
                omitted += row
                continue
            cells = [self._table_cell(frame, row.rank, chunk) for chunk in range(len(self._names))]
            table.add_row(Text(str(row.rank), style=colours.of_rank(row.rank)), *cells)
        yield table
        if omitted:
            yield self._omitted(omitted)

    def _table_cell(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return a cell such as ``+ █░██ 0 2 3 56``, with the number right-aligned."""
        words, value = self._content(frame, rank, chunk, self._layout)
        head = Text(f"{self._mark(frame, rank, chunk):1} ", "bold") + words
        head.pad_right(self._widths[chunk] - head.cell_len - value.cell_len)
        return head + value

    def _omitted(self, count: int) -> Text:
        return Text(f"{self._sign.more} {plural(count, 'more rank')}", style=colours.QUIET)

    def _fits(self, layout: Layout) -> bool:
        """Return True if this table fits, and set the column widths."""
        self._widths = []
        for chunk, name in enumerate(self._names):
            parts = [
                self._content(frame, rank, chunk, layout)
                for frame in self.frames
                for rank in self._shown
            ]
            cells = [2 + words.cell_len + bool(v) + v.cell_len for words, v in parts]
            self._widths.append(max(*cells, len(f"chunk {name}")))
        return sum(self._widths) + 3 * len(self._widths) + len("│ Rank │") <= self._width

    # ---------------------------------------------------------------------------------- as a list

    def _list(self, frame: Frame) -> Iterator[Text]:
        """Yield each rank's chunks; if there are many, those that changed or are complete."""
        for row in self._rows:
            if isinstance(row, int):
                yield self._omitted(row)
                continue
            name = (str(row.rank), f"bold {colours.of_rank(row.rank)}")
            head = Text.assemble(("rank ", "bold"), name)
            head.pad_right(len(f"rank {self._n - 1}") - head.cell_len)
            items = list(self._items(frame, row.rank)) or [Text("nothing", style=colours.QUIET)]
            lines = _wrap(items, self._width, indent=head.cell_len + 2, gap=2)
            yield head + lines[0][head.cell_len :]
            yield from lines[1:]

    def _items(self, frame: Frame, rank: int) -> Iterator[Text]:
        held, chunks = frame.held[rank], range(len(self._names))
        listed = {c for c in chunks if c not in held and self._is_wrong(rank, c, frame)}
        few = len(held) <= FEW_CHUNKS
        listed |= {c for c in held if few or (rank, c) in frame.changed}
        for chunk in sorted(listed):
            yield self._item(frame, rank, chunk)
        complete = [chunk for chunk, cell in sorted(held.items()) if cell.complete]
        if not few and complete:
            names = "all" if len(complete) == len(chunks) else self._chunk_names(complete)
            yield Text.assemble("complete: " if self._reduced else "holds: ", (names, "bold"))
        others = len(held.keys() - listed - set(complete))
        if others:
            yield Text(f"{plural(others, 'other chunk')}", style=colours.QUIET)
        gone = frame.round.gone[rank]
        if gone:
            yield Text(f"gone: {self._chunk_names(gone)}", style=colours.QUIET)

    def _item(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return an item such as ``+1: 0–2 (33)``, or ``0→1 ✓ (3)`` for a named chunk."""
        words, value = self._content(frame, rank, chunk)
        cell = frame.held[rank].get(chunk)
        style = colours.of_rank(cell.ranks[0]) if self._named and cell and cell.ranks else ""
        name = self._names[chunk] + ("" if self._named else ":")
        head = Text.assemble((self._mark(frame, rank, chunk), "bold"), (name, style))
        parts = (head, words, Text.assemble("(", value, ")") if value else Text())
        return Text(" ").join([part for part in parts if part.plain])

    # ------------------------------------------------------------------------------------ messages

    def _arrows(self, transfers: Sequence[Transfer]) -> Text:
        """Return all non-empty messages from and to the shown ranks, wrapped into lines."""
        sent = [transfer for transfer in transfers if transfer.elements]
        drawn = [self._arrow(t) for t in sent if {t.src, t.dst} & self._shown]
        omitted = len(sent) - len(drawn)
        widest = max((arrow.cell_len for arrow in drawn), default=0)
        for arrow in drawn:
            arrow.pad_right(widest - arrow.cell_len)
        if omitted:
            more = f"{self._sign.more} {plural(omitted, 'more message')}"
            drawn.append(Text(more, style=colours.QUIET))
        if len(sent) < len(transfers):
            empty = plural(len(transfers) - len(sent), "empty message")
            drawn.append(Text(f"{empty} not sent", style=colours.QUIET))
        return Text("\n").join(_wrap(drawn or [Text("no message")], self._width, indent=2, gap=3))

    def _arrow(self, transfer: Transfer) -> Text:
        """Return a message: ``0 ═[2]═▶ 1`` is combined, ``0 ─[2]─▶ 1`` replaces."""
        line = "═" if transfer.reduce else "─"
        return Text.assemble(
            (str(transfer.src), colours.of_rank(transfer.src)),
            f" {line}[",
            (self._chunk_names(transfer.chunks), "bold"),
            f"]{line}▶ ",
            (str(transfer.dst), colours.of_rank(transfer.dst)),
        )

    def _chunk_names(self, chunks: Sequence[int]) -> str:
        """Return ``0–3 5`` or ``0→1 2→1``; many named chunks are counted instead."""
        if not self._named:
            return _ranges_text(chunks if len(chunks) < 3 else sorted(chunks)).plain
        if len(chunks) <= FEW_NAMES:
            return " ".join(self._names[chunk] for chunk in chunks)
        return f"{self._names[chunks[0]]} {self._sign.more} {len(chunks)} chunks"


def _ranges_text(ranks: Sequence[int]) -> Text:
    """Return ``0 1 3`` or ``0–3 5`` in the ranks' colours; ``0–3 +2`` contains 2 twice."""
    parts = []
    for first, last in ranges(list(dict.fromkeys(ranks))):
        ends = [Text(str(rank), colours.of_rank(rank)) for rank in dict.fromkeys((first, last))]
        parts.append(Text("–" if last - first > 1 else " ").join(ends))
    again = [rank for index, rank in enumerate(ranks) if rank in ranks[:index]]
    parts += [Text(f"+{rank}", style=colours.WRONG) for rank in again]
    return Text(" ").join(parts or [Text("none", style=colours.QUIET)])


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


def _height(texts: Sequence[Text]) -> int:
    return sum(text.plain.count("\n") + 1 for text in texts)


def _times_text(moments: Sequence[Moment]) -> str:
    """Return the shortest and the longest time of a rank that had a message.

    The rank with the longest time isn't named: most of a time is waiting for other ranks.
    """
    times = [m.ended_s - m.began_s for m in moments if m.ended_s > m.began_s]
    if not times:
        return ""
    return f"{duration(min(times))} to {duration(max(times))} per rank, including waits"
