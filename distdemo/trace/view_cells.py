"""Draw the chunks of ranks and the messages between them in the terminal.

Every colour comes with a word or a sign: ``+ ██░█ 0 1 3  44``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.trace.records import Cell, PlayedRound, TraceReport, Transfer
from distdemo.trace.texts import runs
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.format import number, plural
from distdemo.view.tables import frame as empty_table
from distdemo.view.tables import select

FEW_NAMES = 6  # largest number of named chunks of a message of which all names are shown
FEW_CHUNKS = 8  # largest number of chunks of a rank of which all are listed
ADDED, RECEIVED, ABSENT = "+", "▸", "—"
"""Signs before a cell: combined or received in this round. Sign instead of a cell: not held."""
Layout = Literal["bars", "plain", "list"]


class Frame(NamedTuple):
    """State of all ranks after a round.

    Attributes:
        round: Round; number 0 is the start.
        held: Each rank's cells, by chunk.
        changed: Changes of this round by rank and chunk: True if combined, False if replaced.
    """

    round: PlayedRound
    held: tuple[dict[int, Cell], ...]
    changed: dict[tuple[int, int], bool]


def frames(report: TraceReport) -> list[Frame]:
    """Return the frames of the start and of each round."""
    start = PlayedRound(0, "", (), gone=((),) * report.n)
    found = []
    for each, held in zip((start, *report.rounds), report.states(), strict=True):
        changed = {(t.dst, c): t.reduce for t in each.transfers if t.elements for c in t.chunks}
        found.append(Frame(each, held, changed))
    return found


class Shown(NamedTuple):
    """Row of one rank."""

    rank: int


class Cells:
    """Drawing of all ranks' chunks after a round, with the same columns in every round.

    Args:
        report: Report of the trace.
        console: Console to print on.
        frames: All frames that will be drawn.
        ranks: Ranks to show. None: all of up to 16, otherwise both ends and those with errors.

    Attributes:
        sign: Characters that all views share.
        reduced: True if a chunk combines several contributions.
        named: True if chunks have names instead of numbers, as in all_to_all.
        shown: Ranks that are shown.
        layout: Table with or without bars of contributions, or a list if neither fits.
    """

    def __init__(
        self,
        report: TraceReport,
        console: Console,
        frames: Sequence[Frame],
        ranks: frozenset[int] | None,
    ) -> None:
        self.sign, self._width = signs(console), console.width
        self._n, self._elements = report.n, report.chunk_elements
        self._names = report.chunk_names
        self.reduced = report.spec.op.reduce_op is not None
        self.named = any(name != str(place) for place, name in enumerate(self._names))
        self._wanted = {(rank, c) for rank, chunks in enumerate(report.wanted) for c in chunks}
        last = len(report.rounds)  # if the round is unknown, the chunk is shown as wrong at the end
        since = ((e, last if e.round is None else e.round) for e in report.wrong)
        self._wrong = {(each.rank, each.chunk): number for each, number in since}
        odd = {each.rank for each in report.wrong}
        every = [Shown(rank) for rank in range(report.n)]
        self._rows = list(select(every, ranks, lambda row: row.rank in odd))
        self.shown = frozenset(row.rank for row in self._rows if isinstance(row, Shown))
        self._widths: list[int] = []
        self.layout: Layout = "list"
        if not self.named and 4 * len(self._names) <= self._width:
            tables: tuple[Layout, ...] = ("bars", "plain") if self.reduced else ("plain",)
            self.layout = next((each for each in tables if self._fits(each, frames)), "list")

    # ------------------------------------------------------------------------------------- a cell

    def _mark(self, frame: Frame, rank: int, chunk: int) -> str:
        """Return the sign of this round's change of a chunk; empty if there is none."""
        combined = frame.changed.get((rank, chunk))
        if combined is None or chunk not in frame.held[rank] or not self._elements[chunk]:
            return ""
        return ADDED if combined else RECEIVED

    def _parts(
        self, frame: Frame, rank: int, chunk: int, layout: Layout = "plain"
    ) -> tuple[Text, Text]:
        """Return the contributions in a chunk and its numbers; of more than 4 only the first."""
        cell, wrong = frame.held[rank].get(chunk), self._is_wrong(rank, chunk, frame)
        if cell is None:  # passed on in this round, missing, or never held
            gone = "gone" if chunk in frame.round.gone[rank] else ABSENT
            words = Text(self.sign.wrong, colours.WRONG) if wrong else Text(gone, colours.QUIET)
            return words, Text()
        if not self._elements[chunk]:
            return Text("empty", colours.QUIET), Text()
        parts = [self.bar(cell.ranks)] if layout == "bars" else []
        if cell.complete and self.reduced and self._n > 1:
            parts.append(Text("all", "bold"))
        elif not self.named:
            parts.append(spans(cell.ranks))
        if wrong:
            parts.append(Text(self.sign.wrong, colours.WRONG))
        elif cell.complete and (rank, chunk) in self._wanted:
            parts.append(Text(self.sign.right, f"bold {colours.RIGHT}"))
        value = Text()
        if cell.values:
            all_known = len(cell.values) == self._elements[chunk]
            shown = cell.values if all_known else cell.values[:1]
            numbers = [v if isinstance(v, str) else number(v) for v in shown]
            numbers += [] if all_known else [self.sign.more]
            style = colours.of_rank(cell.ranks[0]) if len(cell.ranks) == 1 else ""
            style = f"bold {style}".strip() if cell.complete else style
            value = Text(" ".join(numbers), style)
        return Text(" ").join(parts), value

    def _is_wrong(self, rank: int, chunk: int, frame: Frame) -> bool:
        return self._wrong.get((rank, chunk), math.inf) <= frame.round.number

    def bar(self, ranks: Sequence[int]) -> Text:
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

    def draw(self, frame: Frame) -> RenderableType:
        """Return the state after this round."""
        if self.layout == "list":
            return Group(*self._list(frame))
        table = empty_table()
        table.add_column("Rank", justify="right", no_wrap=True)
        for name, width in zip(self._names, self._widths, strict=True):
            table.add_column(f"chunk {name}", no_wrap=True, min_width=width)
        omitted = 0
        for row in self._rows:
            if isinstance(row, int):
                table.add_row(self.sign.more)
                omitted += row
                continue
            cells = [self._in_table(frame, row.rank, chunk) for chunk in range(len(self._names))]
            table.add_row(Text(str(row.rank), style=colours.of_rank(row.rank)), *cells)
        return Group(table, self._more(omitted)) if omitted else table

    def _in_table(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return a cell such as ``+ █░██ 0 2 3 56``, with the number right-aligned."""
        words, value = self._parts(frame, rank, chunk, self.layout)
        head = Text(f"{self._mark(frame, rank, chunk):1} ", "bold") + words
        head.pad_right(self._widths[chunk] - head.cell_len - value.cell_len)
        return head + value

    def _more(self, count: int) -> Text:
        return Text(f"{self.sign.more} {plural(count, 'more rank')}", style=colours.QUIET)

    def _fits(self, layout: Layout, frames: Sequence[Frame]) -> bool:
        """Return True if this table fits, and set the column widths."""
        self._widths = []
        for chunk, name in enumerate(self._names):
            found = [
                self._parts(each, rank, chunk, layout) for each in frames for rank in self.shown
            ]
            cells = [2 + words.cell_len + bool(v) + v.cell_len for words, v in found]
            self._widths.append(max(*cells, len(f"chunk {name}")))
        return sum(self._widths) + 3 * len(self._widths) + len("│ Rank │") <= self._width

    # ---------------------------------------------------------------------------------- as a list

    def _list(self, frame: Frame) -> Iterator[Text]:
        """Yield each rank's chunks; if there are many, those that changed or are complete."""
        for row in self._rows:
            if isinstance(row, int):
                yield self._more(row)
                continue
            name = (str(row.rank), f"bold {colours.of_rank(row.rank)}")
            head = Text.assemble(("rank ", "bold"), name)
            head.pad_right(len(f"rank {self._n - 1}") - head.cell_len)
            items = list(self._items(frame, row.rank)) or [Text("nothing", style=colours.QUIET)]
            found = flow(items, self._width, indent=head.cell_len + 2, gap=2)
            yield head + found[0][head.cell_len :]
            yield from found[1:]

    def _items(self, frame: Frame, rank: int) -> Iterator[Text]:
        held, chunks = frame.held[rank], range(len(self._names))
        listed = {c for c in chunks if c not in held and self._is_wrong(rank, c, frame)}
        few = len(held) <= FEW_CHUNKS
        listed |= {c for c in held if few or (rank, c) in frame.changed}
        for chunk in sorted(listed):
            yield self._item(frame, rank, chunk)
        complete = [chunk for chunk, cell in sorted(held.items()) if cell.complete]
        if not few and complete:
            names = "all" if len(complete) == len(chunks) else self.chunk_names(complete)
            yield Text.assemble("complete: " if self.reduced else "holds: ", (names, "bold"))
        others = len(held.keys() - listed - set(complete))
        if others:
            yield Text(f"{plural(others, 'other chunk')}", style=colours.QUIET)
        gone = frame.round.gone[rank]
        if gone:
            yield Text(f"gone: {self.chunk_names(gone)}", style=colours.QUIET)

    def _item(self, frame: Frame, rank: int, chunk: int) -> Text:
        """Return an item such as ``+1: 0–2 (33)``, or ``0→1 ✓ (3)`` for a named chunk."""
        words, value = self._parts(frame, rank, chunk)
        cell = frame.held[rank].get(chunk)
        style = colours.of_rank(cell.ranks[0]) if self.named and cell and cell.ranks else ""
        name = self._names[chunk] + ("" if self.named else ":")
        head = Text.assemble((self._mark(frame, rank, chunk), "bold"), (name, style))
        parts = (head, words, Text.assemble("(", value, ")") if value else Text())
        return Text(" ").join([each for each in parts if each.plain])

    # ------------------------------------------------------------------------------------ messages

    def arrows(self, transfers: Sequence[Transfer]) -> Text:
        """Return all non-empty messages from and to the shown ranks, wrapped into lines."""
        sent = [each for each in transfers if each.elements]
        drawn = [self.arrow(each) for each in sent if {each.src, each.dst} & self.shown]
        omitted = len(sent) - len(drawn)
        widest = max((each.cell_len for each in drawn), default=0)
        for each in drawn:
            each.pad_right(widest - each.cell_len)
        if omitted:
            more = f"{self.sign.more} {plural(omitted, 'more message')}"
            drawn.append(Text(more, style=colours.QUIET))
        if len(sent) < len(transfers):
            empty = plural(len(transfers) - len(sent), "empty message")
            drawn.append(Text(f"{empty} not sent", style=colours.QUIET))
        return Text("\n").join(flow(drawn or [Text("no message")], self._width, indent=2, gap=3))

    def arrow(self, transfer: Transfer) -> Text:
        """Return a message: ``0 ═[2]═▶ 1`` is combined, ``0 ─[2]─▶ 1`` replaces."""
        line = "═" if transfer.reduce else "─"
        return Text.assemble(
            (str(transfer.src), colours.of_rank(transfer.src)),
            f" {line}[",
            (self.chunk_names(transfer.chunks), "bold"),
            f"]{line}▶ ",
            (str(transfer.dst), colours.of_rank(transfer.dst)),
        )

    def chunk_names(self, chunks: Sequence[int]) -> str:
        """Return ``0–3 5`` or ``0→1 2→1``; many named chunks are counted instead."""
        if not self.named:
            return spans(chunks if len(chunks) < 3 else sorted(chunks)).plain
        if len(chunks) <= FEW_NAMES:
            return " ".join(self._names[each] for each in chunks)
        return f"{self._names[chunks[0]]} {self.sign.more} {len(chunks)} chunks"


def spans(ranks: Sequence[int]) -> Text:
    """Return ``0 1 3`` or ``0–3 5`` in the ranks' colours; ``0–3 +2`` contains 2 twice."""
    parts = []
    for first, last in runs(list(dict.fromkeys(ranks))):
        ends = [Text(str(each), colours.of_rank(each)) for each in dict.fromkeys((first, last))]
        parts.append(Text("–" if last - first > 1 else " ").join(ends))
    again = [rank for index, rank in enumerate(ranks) if rank in ranks[:index]]
    parts += [Text(f"+{rank}", style=colours.WRONG) for rank in again]
    return Text(" ").join(parts or [Text("none", style=colours.QUIET)])


def flow(items: Iterable[Text], width: int, indent: int, gap: int) -> list[Text]:
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
