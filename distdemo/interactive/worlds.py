"""Host of ranks that stay: it runs one world after another and passes requests to the ranks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from multiprocessing.connection import Pipe
from typing import Any

from distdemo.calls.inspector import Inspector
from distdemo.calls.match.rules import KINDS
from distdemo.calls.records import END_OF_CELL, Finding, Row
from distdemo.calls.text import rank_label
from distdemo.errors import DistdemoError
from distdemo.interactive.records import (
    Calls,
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
from distdemo.launcher.host import Channel, Interrupt
from distdemo.launcher.records import Died, Outcome, UserProgram, WorldReport, WorldSpec
from distdemo.launcher.verdict import ranks_of
from distdemo.launcher.workers import StopReason

DEADLINE_S = 1e6  # of a world: its cells have none
COPY_S = 1.0  # for the ranks to copy their variables
INTERRUPT_S = 0.7  # from an interrupt until a world is replaced
MAX_OUTPUT = 1 << 20  # bytes of one cell's output on one rank that are passed on


@dataclass
class Remains:
    """State that a world passes to the next one if it ended unexpectedly.

    Attributes:
        report: Report on its end, for the cell that it ended or for the next one.
        copies: Copies of the variables by rank.
        gone: Why all variables of a rank are lost: ``crashed``.
        partial: True if tensors may hold partial results.
    """

    report: CellReport
    copies: dict[int, CopyVariables]
    gone: dict[int, str] = field(default_factory=dict)
    partial: bool = False

    def reported(self, failures: Mapping[int, str], source: str) -> CellReport:
        """Return the report, with what the next world has of the variables.

        Args:
            failures: Why a rank could not read its copy, or empty, by rank.
            source: Code of the cell.
        """
        gone = self.gone | {
            rank: "could not read the copy" for rank, why in failures.items() if why
        }
        kept = [rank for rank in failures if rank not in gone]
        named = in_common({rank: copy.lost for rank, copy in self.copies.items() if copy.lost})
        lost = "; ".join(f"{names.text} of {rank_label(names.ranks)}" for names in named)
        whose = f" of {rank_label(kept)}" if gone else ""
        text = f"The variables{whose} were kept{f', except {lost}' if lost else ''}."
        for reason in in_common(gone):
            who = rank_label(reason.ranks)
            its = "its" if len(reason.ranks) == 1 else "their"
            what = f"{who.capitalize()} {reason.text}, and {its} variables"
            text += f" {what if reason.text else f'The variables of {who}'} are lost."
        if self.partial:
            text += " Tensors of the failed call may hold partial results."
        text = text if kept else "All variables are lost."
        return replace(self.report, source=source, variables=text)


def serve(channel: Channel) -> None:
    """Run the worlds that the client asks for, and those that replace a world that has failed."""
    settings = Settings()
    remains: Remains | None = None
    request: Request | None = None
    while True:
        if request is None and remains is None:
            request = channel.receive()
        if channel.closed:
            return
        if isinstance(request, Settings):
            settings = request
        elif remains is None:
            what = "There are no ranks. Start a new world."
            if not isinstance(request, Interrupt):
                channel.send(Done(ok=False, what=what))
            request = None
            continue
        world = ShellWorld(channel, settings, request, remains)
        try:
            remains = world.run()
            request = world.request
        except DistdemoError as error:
            if world.request is not None:
                channel.send(Done(ok=False, what=str(error)))
            request = remains = None


class ShellWorld:
    """One world, from its start until it is replaced. The launcher's loop listens to it.

    Args:
        channel: Connection to the client.
        settings: Size and backend.
        request: Request that will be answered when the world is ready, or None.
        remains: What is left of the world that this one replaces.

    Attributes:
        request: Request that has no answer yet, or None.
    """

    def __init__(
        self, channel: Channel, settings: Settings, request: Request | None, remains: Remains | None
    ) -> None:
        self.request = request
        self._channel = channel
        self._settings = settings
        self._remains = remains
        self._ranks = range(settings.world_size)
        self._pipes = [Pipe() for _ in self._ranks]  # to the ranks
        self._ready = False
        self._answers: dict[int, Any] = {}  # to this request, by rank
        self._copies: dict[int, CopyVariables] = {}
        self._passed_on: dict[int, int] = {}  # bytes of this cell's output, by rank
        self._interrupted_at: float | None = None
        self._copying_at: float | None = None
        self._warned: set[Finding] = set()  # warnings that were shown

    def run(self) -> Remains | None:
        """Run the world; return what is left of it if it ended without being asked.

        Raises:
            DistdemoError: It can't be started.
        """
        from distdemo.interactive.rank import serve as serve_rank
        from distdemo.launcher import local

        world = _checked(self._settings)
        self._inspector = Inspector(world)
        notes = replace(self._inspector.notes, buffers=True) if self._settings.sanitize else None
        copies = {} if self._remains is None else self._remains.copies
        try:
            report = local.World(self).run(
                world,
                serve_rank,
                (self._pipes, notes, copies),
                on_message=self._on_answer,
                on_output=self._on_output,
                poll=self._poll,
            )
        finally:
            for end in chain(*self._pipes):
                end.close()
        if self.stop_reason is not None:
            return None
        if not self._ready:
            why = "" if report.verdict is None else report.verdict.what
            raise DistdemoError("The ranks can't be started.", why, "Start a new world.")
        return self._conclude(report)

    # ------------------------------------------------------------------------------- requests

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is a request."""
        return self._channel.fileno()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to end this world: the client has exited, or wants another one."""
        ends = self._channel.closed or (self._ready and isinstance(self.request, Settings))
        return StopReason.ENDED_EARLY if ends else None

    def on_message(self) -> bool:
        """Begin with the next request; False if the client has exited."""
        request = self._channel.receive()
        if not isinstance(request, Interrupt):
            self.request = request
            self._begin()
        elif self._waiting and self._cell is not None:
            self._interrupted_at = time.monotonic()
            self._send(self._waiting, request)
        return not self._channel.closed

    @property
    def _waiting(self) -> set[int]:
        """Ranks that haven't answered."""
        return set(self._ranks) - self._answers.keys()

    @property
    def _cell(self) -> Cell | None:
        """Cell that the ranks are running."""
        return self.request if self._ready and isinstance(self.request, Cell) else None

    def _begin(self) -> None:
        """Answer the request, or pass it to the ranks; when this world is ready."""
        if not self._ready or self._copying_at is not None:
            return
        match self.request:
            case Settings():
                try:
                    _checked(self.request)
                except DistdemoError as error:
                    self._answer(what=str(error), ok=False)
            case Calls():
                what = "" if self._settings.sanitize else "--no-sanitize: calls aren't recorded."
                self._answer(self._inspector.calls(), what, ok=not what)
            case Cell(source=source) if self._remains is not None:
                report = self._remains.reported(self._failures, source)
                self._remains = None
                self._answer(report, ok=report.ok)
            case None:
                pass
            case request:
                self._interrupted_at = None
                self._answers.clear()
                self._passed_on.clear()
                chosen = set(self._ranks)
                if isinstance(request, Cell) and request.ranks is not None:
                    chosen &= request.ranks
                self._send(chosen, request)
                self._send(set(self._ranks) - chosen, None)

    def _send(self, ranks: Iterable[int], message: object) -> None:
        for rank in ranks:
            with suppress(OSError):  # it has exited
                self._pipes[rank][0].send(message)

    # -------------------------------------------------------------------------------- answers

    def _on_answer(self, rank: int, answer: Any) -> None:
        if isinstance(answer, CopyVariables):
            self._copies[rank] = answer
            return
        self._answers[rank] = answer
        if self._waiting or self._copying_at is not None:
            return
        if not self._ready:
            self._ready = True
            self._failures: dict[int, str] = dict(self._answers)
            if isinstance(self.request, Settings):
                self._answer()
            else:
                self._begin()
        elif self._cell is not None:
            self._finish(self._cell)
        else:
            failed = [rank for rank in self._ranks if isinstance(self._answers[rank], str)]
            what = f"rank {failed[0]}: {self._answers[failed[0]]}" if failed else ""
            self._answer(dict(self._answers), what, ok=not failed)

    def _answer(self, payload: Any = None, what: str = "", *, ok: bool = True) -> None:
        self.request = None
        self._channel.send(Done(ok, what, payload))

    def _on_output(self, rank: int, data: bytes) -> None:
        passed_on = self._passed_on.get(rank, 0)
        room = MAX_OUTPUT - passed_on
        if data and room >= 0:
            self._passed_on[rank] = passed_on + len(data)
            more = b"\n[... the rest is left out ...]\n" if len(data) > room else b""
            self._channel.send(Output(rank, data[:room] + more))

    def _finish(self, cell: Cell) -> None:
        """Report on a cell that all ranks have finished."""
        if not all(result.has_group for result in self._answers.values()):
            self._copy_variables()
            return
        is_certain, warnings = self._inspector.check()
        if is_certain:
            return  # the next poll ends the world
        report = self._reported(cell)
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                what = f"Warning: {warning.what}"
                report = self._reported(cell, what, warning.rows, warning.rule)
                break
        self._answer(report, ok=report.ok)

    def _reported(
        self, cell: Cell, what: str = "", rows: tuple[Row, ...] = (), rule: str = ""
    ) -> CellReport:
        """Return the report on a cell."""
        results: Mapping[int, CellResult] = self._answers
        values = {rank: result.value for rank, result in results.items() if result.value}
        errors = {rank: result.error for rank, result in results.items() if result.error}
        causes = {rank: text for rank, text in errors.items() if not results[rank].consequence}
        shown = causes or ({} if rows else errors)
        return CellReport(
            cell.source, not errors, in_common(values), in_common(shown), what, rows, rule
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
            self._copy_variables()
        return False

    def _copy_variables(self) -> None:
        self._copying_at = time.monotonic()
        self._send(self._ranks, CopyVariables())

    def _conclude(self, report: WorldReport) -> Remains:
        """Report why the world has ended."""
        gone = {}
        for outcome in report.outcomes:
            if outcome.rank not in self._copies:
                crashed = isinstance(outcome, Died) and outcome.signal is not None
                gone[outcome.rank] = "crashed" if crashed else ""
        cell = self._cell
        if cell is None:
            cell_report = CellReport("", ok=False)
        elif not self._waiting and not all(result.has_group for result in self._answers.values()):
            left = [rank for rank, result in self._answers.items() if not result.has_group]
            what = f"{rank_label(left).capitalize()} destroyed the process group."
            return Remains(self._reported(cell, what), self._copies, gone)
        rows: tuple[Row, ...] = ()
        what = rule = ""
        report, findings = self._inspector.conclude(report)
        if findings:
            what, rows, rule = _explained(findings[0], cell, self._answers)
        if cell is not None and self._interrupted_at is not None:
            what = "The line was interrupted."
            rule = ""
        elif not what and report.verdict is not None:
            what = report.verdict.what
        if cell is None:  # the report is for the next one
            cell_report = CellReport("", ok=False, what=f"{what} This line was not run.")
        else:
            cell_report = replace(self._reported(cell, what, rows, rule), ok=False)
        partial = bool(self._waiting or cell_report.rows)
        return Remains(cell_report, self._copies, gone, partial)


def _explained(
    finding: Finding, cell: Cell | None, results: Mapping[int, CellResult]
) -> tuple[str, tuple[Row, ...], str]:
    """Return a finding in words that fit a cell: some ranks have finished it, others wait."""
    rows = tuple(row for row in finding.rows if not row.did.startswith(END_OF_CELL))
    over = {rank for row in finding.rows if row not in rows for rank in row.ranks}
    waiting = {rank for row in rows for rank in row.ranks} - over
    if not over or not waiting or finding.kind == "absent":
        return finding.what, rows, finding.rule
    failed = {rank for rank in over & results.keys() if results[rank].error}
    chosen = cell.ranks if cell is not None and cell.ranks is not None else over
    shell = cell is None or not cell.file.startswith("<cell")
    unit = "line" if shell else "cell"
    option = "%only" if shell else "--only"
    does = f"run this {unit} ({option} {','.join(map(str, sorted(chosen)))})"
    parts = [
        f"{ranks_of(sorted(ranks)).lower()} {one if len(ranks) == 1 else many}"
        for ranks, one, many in (
            (failed, "raised an error", "raised an error"),
            (over - chosen, f"doesn't {does}", f"don't {does}"),
            (over & chosen - failed, "has finished", "have finished"),
            (waiting, "waits", "wait"),
        )
        if ranks
    ]
    p2p = all(row.did.startswith(("send(", "recv(")) for row in rows)
    rule = f"{KINDS['p2p'].rule} Both must be in one {unit}." if p2p else KINDS["absent"].rule
    return f"{', and '.join(parts).capitalize()}.", rows, rule


def _checked(settings: Settings) -> WorldSpec:
    """Return the specification of a world.

    Raises:
        DistdemoError: It can't be started.
    """
    from distdemo.api import check_world
    from distdemo.backends import prepared

    world = WorldSpec(
        settings.world_size,
        settings.backend,
        deadline=DEADLINE_S,
        start_method="fork",
        capture=True,
        user_program=UserProgram(stdin=-1),
    )
    check_world(world)
    return prepared(world)
