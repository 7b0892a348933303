"""A trace in the terminal: round by round who sends what to whom, and what everybody then holds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.trace import view_words as words
from distdemo.trace.tracing import TraceReport
from distdemo.trace.view_amounts import said
from distdemo.trace.view_arrows import arrows
from distdemo.trace.view_board import Board, rows_of
from distdemo.trace.view_cells import look
from distdemo.trace.view_counts import checks_table
from distdemo.trace.view_frames import Frame, frames, telling
from distdemo.trace.view_legend import legend
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.failure import failure
from distdemo.view.frame import heading


def trace_view(
    report: TraceReport,
    console: Console,
    ranks: frozenset[int] | None = None,
    *,
    every: bool = False,
) -> Group:
    """The whole view: what ran, every round, formulas beside counts, verdict.

    Args:
        report: of a run or of paper.
        console: that it will be printed on; its width and encoding matter.
        ranks: those to show; None: all of up to 16, else the ends and whatever is wrong.
        every: print all rounds, however many there are.
    """
    if not report.rounds and report.world is not None and not report.world.ok:
        return Group(heading(words.title(report, signs(console))), *ending(report, console))
    return Group(
        *preamble(report, console),
        *Rounds(report, console, ranks).all(every=every),
        Text(),
        *ending(report, console),
    )


class Rounds:
    """All frames of a trace, drawn in the same columns.

    Args:
        report: of a run or of paper.
        console: that it will be printed on.
        ranks: those to show; None: the usual choice.

    Attributes:
        frames: the start, and each round.
    """

    def __init__(
        self, report: TraceReport, console: Console, ranks: frozenset[int] | None = None
    ) -> None:
        self._report, self._console = report, console
        self._look = look(report, console)
        self.frames = frames(report)
        odd = frozenset(each.rank for each in report.wrong)
        n = report.spec.op.group_size
        rows = rows_of(n, ranks, odd)
        self._shown = frozenset(row.rank for row in rows if not isinstance(row, int))
        self._all = len(self._shown) == n
        self._board = Board(self._look, self.frames, rows, console.width)

    def all(self, *, every: bool) -> Iterator[RenderableType]:
        """The legend, then frame by frame, a blank line before each."""
        yield Text()
        yield self.legend()
        before = 0
        for frame in self.frames if every else telling(self._report, self.frames):
            yield Text()
            if isinstance(frame, int):
                yield Text(words.left_out(frame, before), style=colours.QUIET)
                continue
            yield from self.draw(frame)
            before = frame.number

    def legend(self) -> Table:
        """What the signs mean."""
        return legend(self._look, self._board.form, self.frames)

    def draw(self, frame: Frame, *, steady: bool = False) -> Iterator[RenderableType]:
        """Title, arrows and what everybody holds.

        Args:
            frame: which.
            steady: fill up with blank lines, so that the table of every frame is at one place.
        """
        yield heading(words.round_title(self._report, frame, self._look.sign))
        lines = [*self._spoiled(frame), *self._arrows(frame)]
        yield from lines
        if steady:
            yield from [Text()] * (self._most - sum(map(_height, lines)))
        yield self._board.draw(frame)

    def _spoiled(self, frame: Frame) -> Iterator[Text]:
        fault = self._report.spec.fault
        if fault and fault.round == frame.number:
            yield Text(words.spoiled(fault), style=colours.WRONG)

    def _arrows(self, frame: Frame) -> Iterator[Text]:
        if frame.step is not None:
            ranks = None if self._all else self._shown
            yield arrows(self._look, frame.step.transfers, ranks, self._console.width)

    @cached_property
    def _most(self) -> int:
        """Lines between title and table, of the frame that needs most."""
        drawn = ([*self._spoiled(frame), *self._arrows(frame)] for frame in self.frames)
        return max(sum(map(_height, lines)) for lines in drawn)


def _height(text: Text) -> int:
    return text.plain.count("\n") + 1


def preamble(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """What ran, how it works and who says so."""
    yield heading(words.title(report, signs(console)))
    yield Text(words.payload(report))
    sign = signs(console)
    yield Text(said(report.about.summary, sign))
    yield Text(said(f"Source: {report.about.source}.", sign), style=colours.QUIET)
    if report.spec.fault:
        yield Text(words.spoiled(report.spec.fault), style=colours.WRONG)


def ending(report: TraceReport, console: Console) -> Iterator[RenderableType]:
    """Formulas beside counts, notes, what is wrong, and the verdict."""
    if report.world is not None and not report.world.ok:
        yield failure(report.world, console)
        return
    if not report.rounds:
        yield Text("No rounds: with one rank there is nobody to send to.")
    yield checks_table(report, console)
    yield from (Text(note, style=colours.QUIET) for note in report.notes)
    yield from words.wrong_lines(report, look(report, console))
    yield words.verdict(report, signs(console))
