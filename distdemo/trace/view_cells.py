"""What one chunk of one rank, and one message, look like in the terminal.

Every colour has a word or a sign beside it: ``+ ██░█ 0 1 3  44``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Console
from rich.text import Text

from distdemo.trace.records import Cell, Moment, PlayedRound, TraceReport, Transfer
from distdemo.trace.texts import runs
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import number, plural

ALL_ROUNDS = 40  # rounds up to which all are shown
ENDS = 2  # of more than that: this many from each end
FEW_NAMES = 6  # chunks of a message up to which those with names of their own are named

# ------------------------------------------------------------------------------------------ frames


@dataclass(frozen=True, slots=True)
class Frame:
    """What all ranks hold before the first round, or after one.

    Attributes:
        number: of the round; 0: before the first.
        round: None before the first.
        held: what each rank holds, by chunk.
        changed: by rank and chunk: True: it was combined; False: it took the place.
        gone: ranks and chunks that went on in this round.
    """

    number: int
    round: PlayedRound | None
    held: tuple[dict[int, Cell], ...]
    changed: dict[tuple[int, int], bool] = field(default_factory=dict)
    gone: frozenset[tuple[int, int]] = frozenset()

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """What was sent in it."""
        return () if self.round is None else self.round.transfers

    @property
    def moments(self) -> tuple[Moment, ...]:
        """When; empty on paper."""
        return () if self.round is None else self.round.moments


def frames(report: TraceReport) -> list[Frame]:
    """All of them, the start included."""
    states = report.states()
    found = [Frame(0, None, next(states))]
    for each, held in zip(report.rounds, states, strict=True):
        reduced = {
            (transfer.dst, chunk): transfer.reduce
            for transfer in each.transfers
            if transfer.elements
            for chunk in transfer.chunks
        }
        changed = {
            (rank, cell.chunk): reduced[rank, cell.chunk]
            for rank, cells in enumerate(each.arrived)
            for cell in cells
            if (rank, cell.chunk) in reduced
        }
        gone = frozenset((rank, chunk) for rank, them in enumerate(each.gone) for chunk in them)
        found.append(Frame(each.number, each, held, changed, gone))
    return found


def telling(report: TraceReport, every: list[Frame]) -> list[Frame | int]:
    """Those to print, and between them how many were left out.

    Of many these are shown: both ends, the ends of each phase, and where something goes wrong.
    """
    if len(every) - 1 <= ALL_ROUNDS:
        return list(every)
    kept = set(_landmarks(report, every))
    found: list[Frame | int] = []
    for frame in every:
        if frame.number in kept:
            found.append(frame)
        elif found and isinstance(found[-1], int):
            found[-1] += 1
        else:
            found.append(1)
    return found


def _landmarks(report: TraceReport, every: list[Frame]) -> Iterator[int]:
    last = every[-1].number
    yield from range(ENDS + 1)
    yield from range(last - ENDS + 1, last + 1)
    for before, after in pairwise(every):
        if before.round and after.round and before.round.phase != after.round.phase:
            yield from (before.number, after.number)

    yield from {each.round for each in report.wrong if each.round is not None}
    if report.spec.fault:
        yield report.spec.fault.round


# -------------------------------------------------------------------------------------------- look


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a trace; each stands beside the words of a legend.

    Attributes:
        full: of a bar: this rank's contribution is in it.
        free: it is not.
        added: combined in this round.
        came: took the place of what was there in this round.
        right: is complete, where it must be.
        wrong: is not what it should be.
        absent: not held.
        to: between two ends of a run of numbers.
        way: from one rank to another, in a chunk's name.
        single: a line of an arrow that copies.
        double: of one that combines.
        head: its end.
    """

    full: str = "█"
    free: str = "░"
    added: str = "+"
    came: str = "▸"
    right: str = "✓"
    wrong: str = "✗"
    absent: str = "·"
    to: str = "–"
    way: str = "→"
    single: str = "─"
    double: str = "═"
    head: str = "▶"


UNICODE = Marks()
ASCII = Marks("#", ".", "+", "*", "ok", "WRONG", ".", "-", ">", "-", "=", ">")


@dataclass(frozen=True, slots=True)
class Look:
    """What all cells of a trace have in common.

    Attributes:
        mark: the characters.
        sign: those that all tables share.
        n: ranks.
        reduced: several contributions come together in a chunk.
        names: of the chunks.
        elements: of each.
        wrong: by rank and chunk, the round after which it was wrong.
        wanted: ranks and chunks that must be held at the end.
    """

    mark: Marks
    sign: Signs
    n: int
    reduced: bool
    names: tuple[str, ...]
    elements: tuple[int, ...]
    wrong: dict[tuple[int, int], int]
    wanted: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, report: TraceReport, console: Console) -> Look:
        """That of a report on a console."""
        mark, last = UNICODE if signs(console) == Signs() else ASCII, len(report.rounds)
        wanted = ((rank, chunk) for rank, them in enumerate(report.wanted) for chunk in them)
        return cls(
            mark,
            signs(console),
            report.n,
            report.spec.op.reduce_op is not None,
            tuple(name.replace(UNICODE.way, mark.way) for name in report.chunk_names),
            report.chunk_elements,
            # A chunk of which nobody knows since when it is wrong is so at the end.
            {(e.rank, e.chunk): last if e.round is None else e.round for e in report.wrong},
            frozenset(wanted),
        )

    @property
    def named(self) -> bool:
        """Whether chunks have names of their own, not numbers: of all_to_all."""
        return any(name != str(place) for place, name in enumerate(self.names))

    def is_wrong(self, rank: int, chunk: int, after: int) -> bool:
        """Whether this chunk of this rank is wrong after a round."""
        since = self.wrong.get((rank, chunk))
        return since is not None and since <= after


@dataclass(frozen=True, slots=True)
class Parts:
    """What a cell is put together from; each may be empty."""

    mark: Text
    bar: Text
    words: Text
    value: Text


def parts(look: Look, frame: Frame, rank: int, chunk: int, numbers: int) -> Parts:
    """The parts of a cell.

    Args:
        look: of the trace.
        frame: which round.
        rank: whose.
        chunk: which.
        numbers: how many of its numbers are shown.
    """
    cell, none = frame.held[rank].get(chunk), Text()
    wrong = look.is_wrong(rank, chunk, frame.number)
    if cell is None:  # it went on in this round, it is missed, or it was never here
        if wrong:
            absent = Text(look.mark.wrong, style=colours.WRONG)
        else:
            gone = (rank, chunk) in frame.gone
            absent = Text("gone" if gone else look.mark.absent, style=colours.QUIET)
        return Parts(none, none, absent, none)
    if not look.elements[chunk]:
        return Parts(none, none, Text("empty", style=colours.QUIET), none)
    how = frame.changed.get((rank, chunk))
    changed = none if how is None else Text(look.mark.added if how else look.mark.came, "bold")
    if look.named:
        told = Text()
    elif cell.complete and look.reduced and look.n > 1:
        told = Text("all", style="bold")
    else:
        told = spans(cell.ranks, look.mark)
    if wrong:
        told.append(f" {look.mark.wrong}", style=colours.WRONG)
    elif cell.complete and (rank, chunk) in look.wanted:
        told.append(f" {look.mark.right}", style=f"bold {colours.RIGHT}")
    value = Text()
    if numbers and cell.values:
        shown = [v if isinstance(v, str) else number(v) for v in cell.values[:numbers]]
        shown += [look.sign.more] if look.elements[chunk] > len(shown) else []
        style = colours.of_rank(cell.ranks[0]) if len(cell.ranks) == 1 else ""
        value = Text(" ".join(shown), style=f"bold {style}".strip() if cell.complete else style)
    contributions = bar(look, cell.ranks) if look.reduced else none
    return Parts(changed, contributions, told[1:] if look.named else told, value)


def bar(look: Look, ranks: Sequence[int]) -> Text:
    """A place a rank, in its colour; a number where a contribution is there more than once."""
    drawn = Text()
    for rank in range(look.n):
        times = ranks.count(rank)
        if times > 1:
            drawn.append(str(min(times, 9)), style=colours.WRONG)
        elif times:
            drawn.append(look.mark.full, style=colours.of_rank(rank))
        else:
            drawn.append(look.mark.free, style=colours.QUIET)
    return drawn


def spans(ranks: Sequence[int], mark: Marks) -> Text:
    """``0 1 3``, ``0–3 5``, each number in its rank's colour; ``0–3 +2``: that of 2 twice."""
    if not ranks:
        return Text("none", style=colours.QUIET)
    told = []
    for first, last in runs(list(dict.fromkeys(ranks))):
        ends = [(str(each), colours.of_rank(each)) for each in dict.fromkeys((first, last))]
        between = (mark.to if last - first > 1 else " ", colours.QUIET)
        told.append(Text.assemble(ends[0], *(part for end in ends[1:] for part in (between, end))))
    again = [rank for place, rank in enumerate(ranks) if rank in ranks[:place]]
    return Text(" ").join([*told, *(Text(f"+{rank}", style=colours.WRONG) for rank in again)])


# ---------------------------------------------------------------------------------------- messages


def arrows(
    look: Look, transfers: Sequence[Transfer], ranks: frozenset[int] | None, width: int
) -> Text:
    """All messages that carry anything, side by side in as many lines as they need.

    Args:
        look: of the trace.
        transfers: of the round.
        ranks: messages from or to these are shown; None: all.
        width: columns.
    """
    sent = [each for each in transfers if each.elements]
    shown = [each for each in sent if ranks is None or {each.src, each.dst} & ranks]
    drawn = [arrow(look, each) for each in shown]
    widest = max((each.cell_len for each in drawn), default=0)
    for each in drawn:
        each.pad_right(widest - each.cell_len)
    if len(shown) < len(sent):
        left_out = f"{look.sign.more} {plural(len(sent) - len(shown), 'message')} more"
        drawn.append(Text(left_out, style=colours.QUIET))
    if len(sent) < len(transfers):
        empty = plural(len(transfers) - len(sent), "empty message")
        drawn.append(Text(f"{empty} not sent", style=colours.QUIET))
    if not drawn:
        drawn.append(Text("nobody sends anything", style=colours.QUIET))
    return Text("\n").join(flow(drawn, width, indent=2, gap=3))


def arrow(look: Look, transfer: Transfer) -> Text:
    """One message: sender, chunks, receiver: ``0 ═[2]═▶ 1`` is combined there, ``─`` copied."""
    line = look.mark.double if transfer.reduce else look.mark.single
    return Text.assemble(
        (str(transfer.src), colours.of_rank(transfer.src)),
        f" {line}[",
        (chunk_names(look, transfer.chunks), "bold"),
        f"]{line}{look.mark.head} ",
        (str(transfer.dst), colours.of_rank(transfer.dst)),
    )


def chunk_names(look: Look, chunks: Sequence[int]) -> str:
    """The chunks as people call them: ``0–3 5``, ``0→1 2→1``; of many with names how many."""
    if all(look.names[each] == str(each) for each in chunks):
        return spans(chunks if len(chunks) < 3 else sorted(chunks), look.mark).plain
    if len(chunks) <= FEW_NAMES:
        return " ".join(look.names[each] for each in chunks)
    return f"{look.names[chunks[0]]} {look.sign.more} {len(chunks)} chunks"


def flow(items: Iterable[Text], width: int, indent: int, gap: int) -> list[Text]:
    """Lines of as many items as fit, each line indented."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + gap + item.cell_len <= width:
            lines[-1] = lines[-1] + Text(" " * gap) + item
        else:
            lines.append(Text(" " * indent) + item)
    for line in lines:
        line.rstrip()
    return lines
