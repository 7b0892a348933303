"""A trace in the terminal: the messages of each round and the chunks of every rank after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.trace.records import Moment, TraceReport, Transfer
from distdemo.trace.texts import (
    cost_table,
    fault_text,
    notes,
    payload_text,
    sameness,
    verdict_text,
    wrong_text,
)
from distdemo.trace.view_cells import ABSENT, ADDED, RECEIVED, Cells, Frame, frames, spans
from distdemo.view import colours
from distdemo.view.console import as_text, signs
from distdemo.view.format import duration, exact_size, plural, shape_text
from distdemo.view.tables import Column, Grid, fitting, heading

MOST_WRONG = 16  # wrong chunks that are listed
ALL_ROUNDS = 40  # largest number of rounds of which all are shown
ENDS = 2  # rounds shown at each end if there are more
STYLES = {"≠": colours.WRONG, "≈": "yellow"}
CONTENTS = {
    "held": "",
    "original": " as it was before the first round",
    "last": " as it was last received",
}


def table(
    report: TraceReport,
    console: Console,
    *,
    ranks: frozenset[int] | None = None,
    every: bool = False,
    speed: float | None = None,
) -> Group:
    """Return the complete view: setup, rounds, formulas and counts, verdict.

    Args:
        report: Report of a run or a simulation.
        console: Console to print on; its width and encoding matter.
        ranks: Ranks to show. None: all of up to 16, otherwise both ends and those with errors.
        every: True to print all rounds, however many there are.
        speed: Speed at which the rounds are played if the terminal allows it. None: print them.
    """
    if speed is not None:
        from distdemo.trace.view_animate import can_play, play

        if can_play(report, console):
            play(report, console, speed, ranks)
            return Group(*ending(report, console))
    rounds = Rounds(report, console, ranks)
    return Group(*preamble(report, console), *rounds.all(every=every), *ending(report, console))


def summary(report: TraceReport, console: Console) -> Text:
    """Return the verdict in one line."""
    style = colours.RIGHT if report.ok else colours.WRONG
    return Text(verdict_text(report, signs(console)), style=style)


def _page(report: TraceReport) -> str:
    from distdemo.trace.page import page

    return page(report)


FILES = {
    ".html": _page,
    ".txt": lambda report: as_text(lambda console: table(report, console, every=True)),
}
"""Writers for ``--output`` by file extension, in addition to JSON."""


def title(report: TraceReport, dot: str) -> str:
    """Return op, algorithm, reduce op, root, ranks, backend, device, dtype and shape."""
    op, world = report.spec.op, report.world
    parts = [op.op, report.algorithm.name]
    parts += [] if op.reduce_op is None else [op.reduce_op]
    parts += [] if op.root is None else [f"root {op.root}"]
    parts.append(plural(op.group_size, "rank"))
    parts += [world.world.backend, world.world.device] if world else ["on paper"]
    return f" {dot} ".join([*parts, shape_text(op.dtype, op.shape)])


def preamble(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """Yield the setup: title, payload, the algorithm's summary and source."""
    yield heading(title(report, signs(console).dot))
    least, most = min(report.chunk_elements), max(report.chunk_elements)
    each = plural(most, "element") if least == most else f"{least:,} to {plural(most, 'element')}"
    chunks = plural(len(report.chunk_elements), "chunk")
    yield Text(f"B = {payload_text(report.traffic)}, in {chunks} of {each}.")
    yield Text(report.algorithm.summary)
    yield Text(f"Source: {report.algorithm.source}.", style=colours.QUIET)
    if report.spec.fault:
        yield Text(fault_text(report.spec.fault), style=colours.WRONG)
    yield Text()


# ------------------------------------------------------------------------------------------ rounds


class Rounds:
    """Frames of a trace, drawn in the same columns.

    Attributes:
        frames: Frames of the start and of each round.
    """

    def __init__(
        self, report: TraceReport, console: Console, ranks: frozenset[int] | None = None
    ) -> None:
        self._report = report
        self.frames = frames(report)
        self._cells = Cells(report, console, self.frames, ranks)

    def all(self, *, every: bool) -> Iterator[RenderableType]:
        """Yield the legend and the frames, each followed by a blank line."""
        yield from (self.legend(), Text())
        kept = range(len(self.frames)) if every else sorted(self._landmarks())
        for before, number in pairwise((-1, *kept)):
            if number > before + 1:
                omitted = f"Rounds {before + 1} to {number - 1} are omitted"
                yield Text(f"{omitted}; --output FILE.txt has all.", style=colours.QUIET)
                yield Text()
            yield from (*self.draw(self.frames[number]), Text())

    def _landmarks(self) -> set[int]:
        """Return the frames to print if there are many: ends, phase changes and errors."""
        report, last = self._report, len(self.frames) - 1
        if last <= ALL_ROUNDS:
            return set(range(last + 1))
        kept = {*range(ENDS + 1), *range(last - ENDS + 1, last + 1)}
        for before, after in pairwise(report.rounds):
            if before.phase != after.phase:
                kept |= {before.number, after.number}
        kept |= {each.round for each in report.wrong if each.round is not None}
        return kept | ({report.spec.fault.round} if report.spec.fault else set())

    def legend(self) -> Table:
        """Return a table that explains the signs."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold", style=colours.QUIET)
        for sign, meaning in self._legend():
            grid.add_row(sign, meaning)
        return grid

    def _legend(self) -> Iterator[tuple[Text, str]]:
        """Yield each sign in use with its meaning; the first arrow of each kind is an example."""
        cells, sign = self._cells, self._cells.sign
        examples: dict[tuple[bool, str], Transfer] = {}
        for each in (t for frame in self.frames for t in frame.round.transfers if t.elements):
            examples.setdefault((each.reduce, each.content), each)
        for each in examples.values():
            what = f"chunk {cells.chunk_names(each.chunks)}{CONTENTS[each.content]}"
            done = "combined with the receiver's data" if each.reduce else "stored as received"
            yield cells.arrow(each), f"rank {each.src} sends {what}, {done}"
        some = tuple(rank for rank in range(self._report.n) if rank != 1)
        if cells.reduced and len(some) > 1:
            bar = [cells.bar(some)] if cells.layout == "bars" else []
            yield Text(" ").join([*bar, spans(some)]), "contributions of all ranks but rank 1"
            yield Text("all", style="bold"), "every rank's contribution"
        yield Text(sign.right, style=f"bold {colours.RIGHT}"), "complete on a rank that needs it"
        if any(len(held) < len(self._report.chunk_names) for f in self.frames for held in f.held):
            yield Text(ABSENT, style=colours.QUIET), "not held"
        if examples:
            yield (
                Text(f"{ADDED} {RECEIVED}", style="bold"),
                "combined in this round; received in this round",
            )
        if self._report.wrong:
            yield Text(sign.wrong, style=colours.WRONG), "wrong"

    def draw(self, frame: Frame, *, lines: int = 0) -> Iterator[RenderableType]:
        """Yield the title, the messages and the chunks of every rank.

        Args:
            frame: Frame to draw.
            lines: Minimum number of lines between title and table.
        """
        parts = ["Before the first round"]
        if frame.round.number:
            parts = [f"Round {frame.round.number} of {len(self._report.rounds)}", frame.round.phase]
            parts.append(_times(frame.round.moments))
        yield heading(f" {self._cells.sign.dot} ".join(filter(None, parts)))
        messages = self._messages(frame)
        yield from messages
        yield from [Text()] * (lines - _height(messages))
        yield self._cells.draw(frame)

    def _messages(self, frame: Frame) -> list[Text]:
        fault = self._report.spec.fault
        faulty = fault is not None and fault.round == frame.round.number
        found = [Text(fault_text(fault), style=colours.WRONG)] if fault and faulty else []
        return [*found, self._cells.arrows(frame.round.transfers)] if frame.round.number else found

    @property
    def most_lines(self) -> int:
        """Largest number of lines that any frame needs between title and table."""
        return max(_height(self._messages(frame)) for frame in self.frames)


def _height(texts: Sequence[Text]) -> int:
    return sum(text.plain.count("\n") + 1 for text in texts)


def _times(moments: Sequence[Moment]) -> str:
    """Return the times of the fastest and the slowest rank that had a message."""
    times = {rank: m.ended_s - m.began_s for rank, m in enumerate(moments) if m.ended_s > m.began_s}
    if not times:
        return ""
    slowest = max(times, key=lambda rank: times[rank])
    return f"{duration(min(times.values()))} to {duration(times[slowest])}, rank {slowest} slowest"


# -------------------------------------------------------------------------------- after the rounds


def ending(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """Yield formulas and counts, notes, wrong chunks and the verdict."""
    if not report.rounds:
        yield Text("No rounds: there is no other rank to send to.")
    yield fitting(console, lambda _: _checks(report, console))
    yield Text(
        f"B: {payload_text(report.traffic)}; n: ranks; trace list explains the other letters.",
        style=colours.QUIET,
    )
    yield Text(
        "Sent: by the rank that sends most. Busiest: sent plus received.",
        style=colours.QUIET,
    )
    marks = {sameness(check) for check in report.checks}
    if "≈" in marks:
        yield Text("≈: the formula assumes equal chunks, and these are unequal.", STYLES["≈"])
    if "≠" in marks:
        yield Text("≠: the schedule doesn't match its formula.", STYLES["≠"])
    handed, counted = sum(report.handed_bytes), report.counts.total_bytes
    if report.handed_bytes and handed != counted:
        text = f"{exact_size(handed)} were handed to the backend; the schedule sends"
        yield Text(f"≠: {text} {exact_size(counted)}.", STYLES["≠"])
    yield from (Text(note, style=colours.QUIET) for note in notes(report))
    for each in report.wrong[:MOST_WRONG]:
        yield Text(wrong_text(each, report.chunk_names), style=colours.WRONG)
    hidden = len(report.wrong) - MOST_WRONG
    if hidden > 0:
        yield Text(f"{plural(hidden, 'more wrong chunk')}", style=colours.QUIET)
    yield summary(report, console)


def _checks(report: TraceReport, console: Console) -> Grid:
    """Return the table of formulas, their values, counts and bytes handed to the backend."""
    heads, rows = cost_table(report, signs(console))
    columns = [Column(heads[0]), Column(heads[1], folds=True)]
    columns += [Column(head, right=True) for head in heads[2:]]
    return Grid(columns, [[Text(cell, STYLES.get(cell[-1], "")) for cell in row] for row in rows])
