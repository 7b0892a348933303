"""Draw a trace in the terminal: the messages of each round and every rank's chunks after it.

Every colour comes with a word or a sign: ``+ ██░█ 0 1 3  44``.
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
from distdemo.view.tables import empty_table, select

FEW_NAMES = 6  # largest number of named chunks of a message of which all names are shown
FEW_CHUNKS = 8  # largest number of chunks of a rank of which all are listed
ADDED, RECEIVED, ABSENT = "+", "▸", "—"
"""Signs before a cell: combined or received in this round. Sign instead of a cell: not held."""
CONTENTS = {
    "held": "",
    "original": " as it was before the first round",
    "last": " as it was last received",
}
"""Versions of a chunk that is sent."""


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
        self._reduced = report.op.reduce_op is not None
        self._named = any(name != str(place) for place, name in enumerate(self._names))
        self._wanted = {(rank, c) for rank, chunks in enumerate(report.wanted) for c in chunks}
        rows = [RankRow(rank) for rank in range(self._n)]
        self._rows = list(select(rows, None, lambda row: row.rank in report.wrong_ranks))
        self._shown = frozenset(row.rank for row in self._rows if isinstance(row, RankRow))
        self._has_bars = self._reduced
        self._widths = self._column_widths()
        if self._has_bars and not self._widths:
            self._has_bars = False
            self._widths = self._column_widths()

    def draw(self) -> Group:
        """Return the legend and the frames, each followed by a blank line."""
        parts: list[RenderableType] = [self.draw_legend(), Text()]
        for frame in self.frames:
            parts += [*self.draw_frame(frame), Text()]
        return Group(*parts)

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
            names = self._chunk_names(transfer.chunks)
            what = f"{f'chunk {names}' if names else 'its tensor'}{CONTENTS[transfer.content]}"
            effect = "stored as received"
            if transfer.reduce:
                effect = "combined with the receiver's data"
            yield self._arrow(transfer), f"rank {transfer.src} sends {what}, {effect}"
        if self._reduced and self._n > 2:
            others = tuple(rank for rank in range(self._n) if rank != 1)
            bar = [self._bar(others)] if self._has_bars else []
            example = Text(" ").join([*bar, _ranges_text(others)])
            yield example, "contributions of all ranks but rank 1, then the values so far"
            yield Text("all", style="bold"), "every rank's contribution"
        right = Text(self._sign.right, style=f"bold {colours.RIGHT}")
        yield right, "complete, and this rank needs it at the end"
        yield Text(ABSENT, style=colours.QUIET), "not held"
        changes = "combined in this round; received in this round"
        yield Text(f"{ADDED} {RECEIVED}", style="bold"), changes

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

    def _content(self, frame: Frame, rank: int, chunk: int) -> tuple[Text, Text]:
        """Return the contributions in a chunk and its numbers; of more than 4 only the first."""
        cell = frame.held[rank].get(chunk)
        if cell is None:  # passed on in this round, or never held
            gone = "gone" if chunk in frame.round.gone[rank] else ABSENT
            return Text(gone, colours.QUIET), Text()
        elements = self._report.chunk_elements[chunk]
        if not elements:
            return Text("empty", colours.QUIET), Text()
        parts = [self._bar(cell.ranks)] if self._has_bars else []
        if cell.complete and self._reduced and self._n > 1:
            parts.append(Text("all", "bold"))
        elif self._reduced:
            parts.append(_ranges_text(cell.ranks))
        if cell.complete and (rank, chunk) in self._wanted:
            parts.append(Text(self._sign.right, f"bold {colours.RIGHT}"))
        shown = cell.values if len(cell.values) == elements else cell.values[:1]
        numbers = [value if isinstance(value, str) else number(value) for value in shown]
        numbers += [self._sign.more] if len(shown) < elements else []
        style = colours.of_rank(cell.ranks[0]) if len(cell.ranks) == 1 else ""
        style = f"bold {style}".strip() if cell.complete else style
        return Text(" ").join(parts), Text(" ".join(numbers), style)

    def _bar(self, ranks: Sequence[int]) -> Text:
        """Return one block per rank, in its colour if it contributed."""
        bar = Text()
        for rank in range(self._n):
            contributes = rank in ranks
            style = colours.of_rank(rank) if contributes else colours.QUIET
            bar.append("█" if contributes else "░", style)
        return bar

    # -------------------------------------------------------------------------------- as a table

    def _column_widths(self) -> list[int]:
        """Return the width of each chunk's column in all rounds; empty if the table doesn't fit.

        Then there is a list per rank.
        """
        if self._named or 4 * len(self._names) > self._width:
            return []
        widths = []
        for chunk, name in enumerate(self._names):
            cells = [self._content(f, rank, chunk) for f in self.frames for rank in self._shown]
            widest = max(words.cell_len + bool(v) + v.cell_len for words, v in cells)
            widths.append(max(2 + widest, len(self._heading(name))))
        fits = sum(widths) + 3 * len(widths) + len("│ Rank │") <= self._width
        return widths if fits else []

    def _heading(self, name: str) -> str:
        return f"chunk {name}" if len(self._names) > 1 else "tensor"

    def _table(self, frame: Frame) -> Iterator[RenderableType]:
        """Yield the table of ranks and chunks, and the number of ranks left out."""
        table = empty_table()
        table.add_column("Rank", justify="right", no_wrap=True)
        for name, width in zip(self._names, self._widths, strict=True):
            table.add_column(self._heading(name), no_wrap=True, min_width=width)
        omitted = 0
        for row in self._rows:
            if isinstance(row, int):
                table.add_row(self._sign.more)
                omitted += row
                continue
            cells = [self._table_cell(frame, row.rank, chunk) for chunk in range(len(self._names))]
            table.add_row(self._rank(row.rank, frame), *cells)
        yield table
        if omitted:
            yield self._omitted(omitted, "rank")

    def _table_cell(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return a cell such as ``+ █░██ 0 2 3 56``, with the number right-aligned."""
        words, value = self._content(frame, rank, chunk)
        head = Text(f"{frame.changed.get((rank, chunk), ''):1} ", "bold") + words
        head.pad_right(self._widths[chunk] - head.cell_len - value.cell_len)
        return head + value

    def _omitted(self, count: int, noun: str) -> Text:
        return Text(f"{self._sign.more} {plural(count, f'more {noun}')}", style=colours.QUIET)

    # ---------------------------------------------------------------------------------- as a list

    def _list(self, frame: Frame) -> Iterator[Text]:
        """Yield each rank's chunks; if there are many, those that changed or are complete."""
        for row in self._rows:
            if isinstance(row, int):
                yield self._omitted(row, "rank")
                continue
            head = Text.assemble(("rank ", "bold"), self._rank(row.rank, frame))
            head.pad_right(len(f"rank {self._n - 1}") - head.cell_len)
            items = list(self._items(frame, row.rank)) or [Text("nothing", style=colours.QUIET)]
            lines = _wrap(items, self._width, indent=head.cell_len + 2, gap=2)
            yield head + lines[0][head.cell_len :]
            yield from lines[1:]

    def _items(self, frame: Frame, rank: int) -> Iterator[Text]:
        held = frame.held[rank]
        is_short = len(held) <= FEW_CHUNKS
        for chunk in sorted(held):
            if is_short or (rank, chunk) in frame.changed:
                yield self._item(frame, rank, chunk)
        complete = [chunk for chunk, cell in sorted(held.items()) if cell.complete]
        if complete and not is_short:
            yield Text.assemble("complete: ", (self._chunk_names(complete), "bold"))
        gone = frame.round.gone[rank]
        if gone:
            yield Text(f"gone: {self._chunk_names(gone)}", style=colours.QUIET)

    def _item(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return an item such as ``+1: 0–2 (33)``, or ``0→1 ✓ (3)`` for a named chunk."""
        words, value = self._content(frame, rank, chunk)
        style = colours.of_rank(frame.held[rank][chunk].ranks[0]) if self._named else ""
        name = self._names[chunk] + ("" if self._named else ":")
        head = Text.assemble((frame.changed.get((rank, chunk), ""), "bold"), (name, style))
        parts = (head, words, Text.assemble("(", value, ")") if value else Text())
        return Text(" ").join([part for part in parts if part.plain])

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
        return Text("\n").join(_wrap(arrows or [Text("no message")], self._width, indent=2, gap=3))

    def _arrow(self, transfer: Transfer) -> Text:
        """Return a message: ``0 ═[2]═▶ 1`` is combined, ``0 ─[2]─▶ 1`` replaces."""
        line = "═" if transfer.reduce else "─"
        names = self._chunk_names(transfer.chunks)
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
            return _ranges_text(chunks if len(chunks) < 3 else sorted(chunks)).plain
        if len(chunks) <= FEW_NAMES:
            return " ".join(self._names[chunk] for chunk in chunks)
        return f"{self._names[chunks[0]]} {self._sign.more} {len(chunks)} chunks"


def _ranges_text(ranks: Sequence[int]) -> Text:
    """Return ``0 1 3`` or ``0–3 5`` in the ranks' colours."""
    parts = []
    for first, last in ranges(dict.fromkeys(ranks)):
        ends = [Text(str(rank), colours.of_rank(rank)) for rank in dict.fromkeys((first, last))]
        parts.append(Text("–" if last - first > 1 else " ").join(ends))
    return Text(" ").join(parts)


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
