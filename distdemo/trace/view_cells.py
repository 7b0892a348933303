"""One chunk of one rank: whose contribution is in it, its numbers, and what the round did to it.

Every colour has a word or a sign beside it: ``+ ██░█ 0 1 3  44``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from distdemo.trace.tracing import Cell, TraceReport
from distdemo.trace.view_frames import Frame
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.numbers import number


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a trace; what is here stands beside the words of a legend.

    Attributes:
        full: of a bar: this rank's contribution is in it.
        free: it is not.
        added: combined in this round.
        came: took the place of what was there in this round.
        right: is complete, where it has to be.
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


def marks(console: Console) -> Marks:
    """Those that this console's encoding has."""
    return UNICODE if signs(console) == Signs() else ASCII


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
        wanted: ranks and chunks that have to be held at the end.
    """

    mark: Marks
    sign: Signs
    n: int
    reduced: bool
    names: tuple[str, ...]
    elements: tuple[int, ...]
    wrong: dict[tuple[int, int], int]
    wanted: frozenset[tuple[int, int]]

    @property
    def named(self) -> bool:
        """Whether chunks have names of their own, not numbers: of all_to_all."""
        return any(name != str(place) for place, name in enumerate(self.names))

    def is_wrong(self, rank: int, chunk: int, after: int) -> bool:
        """Whether this chunk of this rank is wrong after a round."""
        since = self.wrong.get((rank, chunk))
        return since is not None and since <= after


def look(report: TraceReport, console: Console) -> Look:
    """That of a report on a console; what went wrong nobody knows when, did in the last round."""
    mark, last = marks(console), len(report.rounds)
    wrong = {
        (each.rank, each.chunk): last if each.round is None else each.round for each in report.wrong
    }
    return Look(
        mark,
        signs(console),
        report.spec.op.group_size,
        report.spec.op.reduce_op is not None,
        tuple(name.replace(UNICODE.way, mark.way) for name in report.chunk_names),
        report.chunk_elements,
        wrong,
        frozenset((rank, chunk) for rank, chunks in enumerate(report.wanted) for chunk in chunks),
    )


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
    cell = frame.held[rank].get(chunk)
    none = Text()
    if cell is None:
        return Parts(none, none, _absent(look, frame, rank, chunk), none)
    if not look.elements[chunk]:
        return Parts(none, none, Text("empty", style=colours.QUIET), none)
    return Parts(
        changed(look, frame, rank, chunk),
        bar(look, cell.ranks) if look.reduced else none,
        words(look, frame, rank, cell),
        values(look, cell, numbers),
    )


def _absent(look: Look, frame: Frame, rank: int, chunk: int) -> Text:
    """A chunk that is not there: it went on in this round, it is missed, or it was never here."""
    if look.is_wrong(rank, chunk, frame.number):
        return Text(look.mark.wrong, style=colours.WRONG)
    if (rank, chunk) in frame.gone:
        return Text("gone", style=colours.QUIET)
    return Text(look.mark.absent, style=colours.QUIET)


def changed(look: Look, frame: Frame, rank: int, chunk: int) -> Text:
    """What this round did to it: nothing, combined something with it, or put it there."""
    how = frame.changed.get((rank, chunk))
    if how is None:
        return Text()
    return Text(look.mark.added if how else look.mark.came, style="bold")


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


def words(look: Look, frame: Frame, rank: int, cell: Cell) -> Text:
    """Whose contribution is in it, if its name does not say so; whether it is as it has to be."""
    if look.named:
        told = Text()
    elif cell.complete and look.reduced and look.n > 1:
        told = Text("all", style="bold")
    else:
        told = spans(cell.ranks, look.mark)
    if look.is_wrong(rank, cell.chunk, frame.number):
        told.append(f" {look.mark.wrong}", style=colours.WRONG)
    elif cell.complete and (rank, cell.chunk) in look.wanted:
        told.append(f" {look.mark.right}", style=f"bold {colours.RIGHT}")
    return told[1:] if look.named else told


def spans(ranks: Sequence[int], mark: Marks) -> Text:
    """``0 1 3``, ``0–3 5``, each number in its rank's colour; ``0–3 +2``: that of 2 twice."""
    if not ranks:
        return Text("none", style=colours.QUIET)
    once = list(dict.fromkeys(ranks))
    told = [_span(first, last, mark) for first, last in runs(once)]
    again = [rank for place, rank in enumerate(ranks) if rank in ranks[:place]]
    return Text(" ").join([*told, *(Text(f"+{rank}", style=colours.WRONG) for rank in again)])


def _span(first: int, last: int, mark: Marks) -> Text:
    ends = [(str(each), colours.of_rank(each)) for each in dict.fromkeys((first, last))]
    between = (mark.to if last - first > 1 else " ", colours.QUIET)
    return Text.assemble(ends[0], *(part for end in ends[1:] for part in (between, end)))


def runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of numbers that follow each other."""
    first = last = numbers[0]
    for each in numbers[1:]:
        if each != last + 1:
            yield first, last
            first = each
        last = each
    yield first, last


def numbered(numbers: Sequence[int], mark: Marks) -> str:
    """``0–3 5``, without colours."""
    return spans(numbers, mark).plain


def values(look: Look, cell: Cell, numbers: int) -> Text:
    """Its first numbers, in the colour of the rank that they are from; complete is bold."""
    if not numbers or not cell.values:
        return Text()
    shown = [v if isinstance(v, str) else number(v) for v in cell.values[:numbers]]
    if look.elements[cell.chunk] > len(shown):
        shown.append(look.sign.more)
    style = colours.of_rank(cell.ranks[0]) if len(cell.ranks) == 1 else ""
    return Text(" ".join(shown), style=f"bold {style}".strip() if cell.complete else style)
