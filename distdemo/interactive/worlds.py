"""Host of ranks that stay: it runs one world after another and passes requests to the ranks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from multiprocessing.connection import Pipe
from typing import Any

from distdemo.calls.inspector import Inspector
from distdemo.calls.match.rules import KINDS
from distdemo.calls.records import END_OF_CELL, Finding, Row
from distdemo.calls.text import advice, headline, rank_label
from distdemo.errors import DistdemoError
from distdemo.interactive.records import (
    Cell,
    CellReport,
    CellResult,
    CopyVariables,
    Done,
    Output,
    Request,
    Settings,
    in_common,
)
from distdemo.launcher.helper import Channel, Interrupt
from distdemo.launcher.records import Outcome, UserProgram, WorldReport, WorldSpec
from distdemo.launcher.workers import StopReason

DEADLINE_S = 1e6  # of a world: its cells have none
COPY_S = 1.0  # for the ranks to copy their variables
INTERRUPT_S = 0.7  # from an interrupt until a world is replaced
Copies = Mapping[int, CopyVariables]


def serve(channel: Channel) -> None:
    """Run the worlds that the client asks for, and those that replace a world that has failed."""
    request = settings = _next_request(channel)
    copies: Copies = {}
    while not channel.closed:
        world = ShellWorld(channel, settings, request, copies)
        try:
            copies = world.run()
            request = world.request
        except DistdemoError as error:
            if world.request is None:
                _next_request(channel)
            channel.send(Done(ok=False, what=str(error)))
            copies = {}
            request = _next_request(channel)
        if isinstance(request, Settings):
            settings = request


def _next_request(channel: Channel) -> Any:
    request = channel.receive()
    while isinstance(request, Interrupt):
        request = channel.receive()
    return request


class ShellWorld:
    """One world, from its start until it is replaced. The launcher's loop listens to it.

    Args:
        channel: Connection to the client.
        settings: Size and backend.
        request: Request that will be answered when the world is ready, or None.
        copies: Variables to start with, by rank.

    Attributes:
        request: Request that has no answer yet, or None.
    """

    def __init__(
        self, channel: Channel, settings: Settings, request: Request | None, copies: Copies
    ) -> None:
        self.request = request
        self._channel = channel
        self._settings = settings
        self._old_copies = copies
        self._ranks = range(settings.world_size)
        self._pipes = [Pipe() for _ in self._ranks]  # to the ranks
        self._is_ready = False
        self._running: Cell | None = Cell()  # until the ranks are ready
        self._results: dict[int, CellResult] = {}  # of this cell, by rank
        self._copies: dict[int, CopyVariables] = {}
        self._interrupted_at: float | None = None
        self._copying_at: float | None = None
        self._warned: set[Finding] = set()  # warnings that were shown
        self._gaps: set[tuple[str, tuple[str, ...]]] = set()  # that were shown
        self._has_stopped = False  # True if it was shown that calls are no longer compared

    def run(self) -> Copies:
        """Run the world; return copies of its variables if it ended without being asked.

        Raises:
            DistdemoError: It can't be started.
        """
        from distdemo.interactive.rank import serve as serve_rank
        from distdemo.launcher import local

        world = _checked(self._settings)
        self._inspector = Inspector(world)
        notes = replace(self._inspector.notes, buffers=True)
        try:
            report = local.World(self).run(
                world,
                serve_rank,
                (self._pipes, notes, self._old_copies),
                on_message=self._on_answer,
                on_output=self._on_output,
                poll=self._poll,
            )
        finally:
            for end in chain(*self._pipes):
                end.close()
        if self.stop_reason is not None:
            return {}
        if not self._is_ready:
            why = "" if report.verdict is None else report.verdict.what
            raise DistdemoError("The ranks can't be started.", why, "Start a new world.")
        self._conclude(report)
        return self._copies

    # ------------------------------------------------------------------------------- requests

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is a request."""
        return self._channel.fileno()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to end this world: the client has exited, or wants another one."""
        is_replaced = isinstance(self.request, Settings) and self.request is not self._settings
        return StopReason.ENDED_EARLY if self._channel.closed or is_replaced else None

    def on_message(self) -> bool:
        """Begin with the next request; False if the client has exited."""
        request = self._channel.receive()
        if not isinstance(request, Interrupt):
            self.request = request
            self._begin()
        elif self._is_ready and self._running is not None:
            self._interrupted_at = time.monotonic()
            for rank in self._waiting:
                self._send(rank, request)
        return not self._channel.closed

    @property
    def _waiting(self) -> set[int]:
        """Ranks that haven't finished the cell."""
        return set(self._ranks) - self._results.keys()

    def _begin(self) -> None:
        """Pass a cell to the ranks, unless these are starting or ending."""
        if self._running is not None or self._copying_at is not None:
            return
        if isinstance(self.request, Settings):
            try:
                _checked(self.request)
            except DistdemoError as error:
                self._answer(Done(ok=False, what=str(error)))
        elif self.request is not None:
            cell = self._running = self.request
            self._inspector.judge.leave_out_calls()
            self._interrupted_at = None
            self._results.clear()
            for rank in self._ranks:
                self._send(rank, cell if cell.ranks is None or rank in cell.ranks else None)

    def _send(self, rank: int, message: object) -> None:
        with suppress(OSError):  # it has exited
            self._pipes[rank][0].send(message)

    # -------------------------------------------------------------------------------- answers

    def _on_output(self, rank: int, data: bytes) -> None:
        if data:
            self._channel.send(Output(rank, data))

    def _on_answer(self, rank: int, answer: Any) -> None:
        if isinstance(answer, CopyVariables):
            self._copies[rank] = answer
            return
        self._results[rank] = answer
        if self._waiting or self._copying_at is not None:
            return
        if self._is_ready:
            self._finish()
            return
        self._is_ready = True
        self._running = None
        if self.request is self._settings:
            self._answer(Done())
        else:
            self._begin()

    def _answer(self, done: Done) -> None:
        self.request = None
        self._channel.send(done)

    def _finish(self) -> None:
        """Report on a cell that all ranks have finished."""
        if self._inspector.check():
            return  # the next poll ends the world
        report = self._reported()
        pulled = tuple(self._results[rank].pulled for rank in self._ranks)
        self._running = None
        self._answer(Done(report.ok, payload=report, pulled=pulled))

    def _reported(self, rows: tuple[Row, ...] = ()) -> CellReport:
        """Return the report on the cell.

        Args:
            rows: Calls that ranks were waiting in, if that ended the cell.
        """
        assert self._running is not None  # a cell is running
        values = {rank: result.value for rank, result in self._results.items() if result.value}
        errors = {rank: result.error for rank, result in self._results.items() if result.error}
        causes = {
            rank: error for rank, error in errors.items() if not self._results[rank].consequence
        }
        shown = causes or ({} if rows else errors)
        held = [result.held for _, result in sorted(self._results.items()) if result.held]
        inspector = self._inspector
        warnings = [warning for warning in inspector.warnings() if warning not in self._warned]
        self._warned.update(warnings)
        stopped = "" if self._has_stopped or inspector.judge.finding else inspector.stopped
        self._has_stopped = bool(inspector.stopped)
        gaps = [gap for gap in inspector.gaps() if (gap.what, gap.names) not in self._gaps]
        self._gaps.update((gap.what, gap.names) for gap in gaps)
        return CellReport(
            self._running.source,
            not errors,
            in_common(values),
            () if values else tuple(held),
            in_common(shown),
            rows=rows,
            calls=inspector.judge.calls(),
            warnings=tuple(warnings),
            stopped=stopped,
            gaps=tuple(gaps),
        )

    # -------------------------------------------------------------------------------- the end

    def _poll(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Return True if the world should end; first the ranks copy their variables."""
        now = time.monotonic()
        if self._copying_at is not None:
            done = all(rank in self._copies or outcomes[rank] for rank in self._ranks)
            return done or now - self._copying_at > COPY_S
        interrupted = self._interrupted_at if self._waiting else None
        is_late = interrupted is not None and now - interrupted > INTERRUPT_S
        if self._inspector.poll(outcomes) or is_late or any(outcomes):
            self._copying_at = now
            for rank in self._ranks:
                self._send(rank, CopyVariables())
        return False

    def _conclude(self, report: WorldReport) -> None:
        """Report the end of the world, with the running cell or before the next one."""
        report, findings = self._inspector.conclude(report)
        what = "" if report.verdict is None else report.verdict.what
        rule = ""
        rows: tuple[Row, ...] = ()
        if findings:
            what, rows, rule = _explained(findings[0])
        lost = {rank: copy.lost for rank, copy in self._copies.items()}
        lost |= dict.fromkeys(set(self._ranks) - lost.keys(), "all")
        names = [
            f"{each.text} of {rank_label(each.ranks)}" for each in in_common(lost) if each.text
        ]
        kept = f"The variables were kept{', except ' * bool(names)}{' and '.join(names)}."
        if self._running is None:
            self._channel.send(Output(0, f"{what} New ranks replace these. {kept}\n".encode()))
            return
        if self._interrupted_at is not None:
            what = "The line was interrupted."
            rule = ""
        kept += " Tensors of a call that didn't finish may hold partial results."
        cell_report = replace(self._reported(rows), ok=False, what=what, rule=rule, variables=kept)
        self._answer(Done(ok=False, payload=cell_report))


def _explained(finding: Finding) -> tuple[str, tuple[Row, ...], str]:
    """Return a finding in words that fit a cell: some ranks have finished it, others wait."""
    rows = tuple(row for row in finding.rows if row.op != END_OF_CELL)
    finished = {rank for row in finding.rows if row not in rows for rank in row.ranks}
    waiting = {rank for row in rows for rank in row.ranks} - finished
    if not finished or not waiting or finding.kind == "absent":
        return headline(finding), rows, advice(finding)
    is_p2p = all(row.op in ("send", "recv") for row in rows)
    what = f"Waiting: {rank_label(sorted(waiting))}. Finished: {rank_label(sorted(finished))}."
    return what, rows, KINDS["p2p" if is_p2p else "absent"].rule


def _checked(settings: Settings) -> WorldSpec:
    """Return the specification of a world.

    Raises:
        DistdemoError: It can't be started.
    """
    from distdemo.api import check_world
    from distdemo.backends import prepared, resolved

    world = WorldSpec(
        settings.world_size,
        resolved(settings.backend),
        deadline=DEADLINE_S,
        start_method="fork",
        capture=True,
        user_program=UserProgram(stdin=-1),
    )
    check_world(world)
    return prepared(world)
