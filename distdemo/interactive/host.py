"""Process that ranks are forked from: ``python -m distdemo.interactive.host FD PARENT``.

It has loaded torch and has computed nothing, so its forks are safe and fast, whatever the program
that started it has done. It runs one world after another, and relays requests to the ranks.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from distdemo.calls.inspector import Inspector
from distdemo.calls.match.rules import KINDS
from distdemo.calls.records import END_OF_CELL, Finding, Row
from distdemo.calls.text import rank_label
from distdemo.errors import DistdemoError
from distdemo.interactive.records import (
    COPY,
    START,
    Calls,
    Cell,
    CellReport,
    Copy,
    Done,
    Interrupt,
    NewWorld,
    Output,
    Request,
    Settings,
    in_common,
)
from distdemo.launcher.process_tree import die_with_parent
from distdemo.launcher.records import Died, Outcome, UserProgram, WorldReport, WorldSpec
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.verdict import ranks_of

DEADLINE_S = 1e6  # of a world: its cells have none
COPY_S = 1.0  # seconds for the ranks to copy their variables
INTERRUPT_S = 0.7  # seconds from an interrupt until a world is replaced
MAX_OUTPUT = 1 << 20  # bytes of one cell's output on one rank that are passed on


class Program:
    """Connection to the program, which sends one request and waits for its answer.

    Attributes:
        request: Request that has no answer yet, or None.
        closed: True if the program has closed the connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.request: Request | None = None
        self.closed = False
        self.connection = connection
        self._number = 0

    def receive(self) -> Request | None:
        """Wait for a message and return it, or None if the program has closed the connection."""
        try:
            number, message = self.connection.recv()
        except (EOFError, OSError):
            self.closed = True
            return None
        if not isinstance(message, Interrupt):
            self._number, self.request = number, message
        return message  # type: ignore[no-any-return]  # it sends nothing else

    def answer(self, what: str = "", payload: Any = None, *, ok: bool = True) -> None:
        """Answer the request, if there is one."""
        if self.request is not None:
            self.request = None
            self.connection.send(Done(self._number, ok, what, payload))


class World:
    """One world, from its start until it ends.

    A thread relays the program's requests to the ranks; the launcher's loop gets their answers.

    Args:
        program: Program that sends the requests.
        settings: Size and backend.
        before: World that ended without being asked, which this one replaces.

    Attributes:
        next: Settings of the next world; None if this one could not be started.
        report: Report on its end, for the cell that it ended or for the next one; None if the
            program asked for another world.
        copies: Variables by rank, pickled, and the names of those that can't be.
        gone: Why all variables are lost, by rank: ``crashed``.
    """

    def __init__(self, program: Program, settings: Settings, before: World | None) -> None:
        self.next: Settings | None = None
        self.report: CellReport | None = None
        self.copies: dict[int, tuple[bytes, str]] = {}
        self.gone: dict[int, str] = {}
        self._program = program
        self._settings = settings
        self._before = before
        self._ready = False
        self._ranks = range(settings.world_size)
        self._channels = [Pipe() for _ in self._ranks]
        self._relay_ends, self._end_relay = Pipe(duplex=False)
        self._marker = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._number = START
        self._request: Request | None = None  # what the ranks are doing
        self._answers: dict[int, Any] = {}  # to this request, by rank
        self._unmarked: set[int] = set()  # ranks whose output hasn't arrived to the end
        self._held: dict[int, bytes] = {}  # output that may be the beginning of a marker
        self._passed: dict[int, int] = {}  # bytes of output that were passed on
        self._interrupted_at: float | None = None
        self._copying_at: float | None = None
        self._warned: set[Finding] = set()  # warnings that were shown

    def run(self) -> None:
        """Run the world until it is replaced or the program closes the connection.

        Raises:
            DistdemoError: It can't be started.
        """
        from distdemo.interactive.rank import serve
        from distdemo.launcher.local import run_world

        world = _checked(self._settings)
        self._inspector = Inspector(world)
        notes = replace(self._inspector.notes, buffers=True) if self._settings.sanitize else None
        copies = {} if self._before is None else self._before.copies
        relay = threading.Thread(target=self._relay)
        try:
            report = run_world(
                world,
                serve,
                (self._channels, self._marker, notes, copies),
                after_start=relay.start,
                on_message=self._on_message,
                on_output=self._on_output,
                poll=self._poll,
            )
        finally:
            self._end_relay.send(None)
            if relay.ident is not None:
                relay.join()
            for end in (*chain(*self._channels), self._relay_ends, self._end_relay):
                end.close()
        if self._program.closed or self.next is not None:
            return
        if not self._ready:
            why = "" if report.verdict is None else report.verdict.what
            raise DistdemoError("The ranks can't be started.", why, "Start a new world.")
        self._conclude(report)
        self.next = self._settings

    @property
    def _waiting(self) -> set[int]:
        """Ranks that haven't answered."""
        return set(self._ranks) - self._answers.keys()

    # ------------------------------------------------------------------------------- requests

    def _relay(self) -> None:
        """Pass requests on to the ranks as they arrive."""
        while self._relay_ends not in wait([self._program.connection, self._relay_ends]):
            with self._lock:
                request = self._program.receive()
                if request is None:
                    return
                self._handle(request)

    def _handle(self, request: Request) -> None:
        match request:
            case Interrupt():
                if self._waiting and isinstance(self._request, Cell):
                    self._interrupted_at = time.monotonic()
                    self._send(self._waiting, request)
            case NewWorld():
                try:
                    _checked(request.settings)
                    self.next = request.settings
                except DistdemoError as error:
                    self._program.answer(str(error), ok=False)
            case _ if not self._ready or self._copying_at is not None or self.next is not None:
                pass  # it is handled when this world is ready, or the next one
            case Calls():
                what = "" if self._settings.sanitize else "--no-sanitize: calls aren't recorded."
                self._program.answer(what, self._inspector.calls(), ok=not what)
            case Cell() if self._before is not None and self._before.report is not None:
                report = replace(self._before.report, source=request.source)
                self._before = None
                self._program.answer(payload=report, ok=report.ok)
            case _:
                self._number += 1
                self._request = request
                self._interrupted_at = None
                self._answers.clear()
                self._passed.clear()
                chosen = set(self._ranks)
                if isinstance(request, Cell):
                    self._unmarked |= chosen
                    chosen &= chosen if request.ranks is None else request.ranks
                self._send(chosen, request)
                self._send(set(self._ranks) - chosen, None)

    def _send(self, ranks: Iterable[int], what: Request | Copy | None) -> None:
        number = COPY if isinstance(what, Copy) else self._number
        for rank in ranks:
            with suppress(OSError):  # it has exited
                self._channels[rank][0].send((number, what))

    # -------------------------------------------------------------------------------- answers

    def _on_message(self, rank: int, message: tuple[int, Any]) -> None:
        number, answer = message
        with self._lock:
            if number == self._number:
                self._answers[rank] = answer
                self._finish_if_done()
            elif number == COPY and not isinstance(answer, str):
                self.copies[rank] = answer

    def _on_output(self, rank: int, piece: bytes) -> None:
        if not piece:
            return
        with self._lock:
            data = self._held.pop(rank, b"") + piece
            before, marker, after = data.partition(self._marker)
            if marker:
                self._pass_on(rank, before)
                self._unmarked.discard(rank)
                self._finish_if_done()
                before = after
            lengths = range(min(len(before), len(self._marker) - 1), 0, -1)
            held = next((n for n in lengths if before.endswith(self._marker[:n])), 0)
            self._held[rank] = before[len(before) - held :]
            self._pass_on(rank, before[: len(before) - held])

    def _pass_on(self, rank: int, data: bytes) -> None:
        passed = self._passed.get(rank, 0)
        room = MAX_OUTPUT - passed
        if not data or room < 0:
            return
        self._passed[rank] = passed + len(data)
        more = b"\n[... the rest is left out ...]\n" if len(data) > room else b""
        self._program.connection.send(Output(rank, data[:room] + more))

    def _finish_if_done(self) -> None:
        """Answer the request if all ranks have."""
        if self._waiting or self._unmarked or self._copying_at is not None:
            return
        if not self._ready:
            self._ready = True
            request = self._program.request
            if self._before is not None:
                self._before.add_variables(self._answers)
            if isinstance(request, NewWorld) and self.next is None:
                self._program.answer()
            elif request is not None:
                self._handle(request)
        elif isinstance(self._request, Cell):
            if not all(result.has_group for result in self._answers.values()):
                self._copy_variables()
                return
            found, warnings = self._inspector.check()
            if found:
                return  # the next poll ends the world
            new = next((each for each in warnings if each not in self._warned), None)
            if new is None:
                report = self._reported(self._request, "")
            else:
                self._warned.add(new)
                report = self._reported(self._request, f"Warning: {new.what}", new.rows, new.rule)
            self._request = None
            self._program.answer(payload=report, ok=report.ok)
        elif self._request is not None:
            failed = sorted(r for r, answer in self._answers.items() if isinstance(answer, str))
            what = f"rank {failed[0]}: {self._answers[failed[0]]}" if failed else ""
            self._request = None
            self._program.answer(what, self._answers, ok=not failed)

    def _reported(
        self, cell: Cell, what: str, rows: tuple[Row, ...] = (), rule: str = "", *, ok: bool = True
    ) -> CellReport:
        """Return the report on the present cell."""
        values = {rank: each.value for rank, each in self._answers.items() if each.value}
        errors = {rank: each.error for rank, each in self._answers.items() if each.error}
        causes = {r: text for r, text in errors.items() if not self._answers[r].consequence}
        shown = causes or ({} if rows else errors)
        ok = ok and not errors
        return CellReport(cell.source, ok, in_common(values), in_common(shown), what, rows, rule)

    # -------------------------------------------------------------------------------- the end

    def _poll(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Return True if the world should end; first the ranks copy their variables."""
        with self._lock:
            if self._program.closed or self.next is not None:
                return True
            now = time.monotonic()
            if self._copying_at is not None:
                done = all(rank in self.copies or outcomes[rank] for rank in self._ranks)
                return done or now - self._copying_at > COPY_S
            interrupted = self._interrupted_at if self._waiting else None
            late = interrupted is not None and now - interrupted > INTERRUPT_S
            if self._inspector.poll(outcomes) or late or any(outcomes):
                self._copy_variables()
            return False

    def _copy_variables(self) -> None:
        self._copying_at = time.monotonic()
        self._send(self._ranks, Copy())

    def _conclude(self, report: WorldReport) -> None:
        """Report why the world has ended."""
        for outcome in report.outcomes:
            if outcome.rank not in self.copies:
                crashed = isinstance(outcome, Died) and outcome.signal is not None
                self.gone[outcome.rank] = "crashed" if crashed else ""
        cell = self._request if isinstance(self._request, Cell) else None
        left = [rank for rank, each in self._answers.items() if cell and not each.has_group]
        if cell is not None and left and not self._waiting:
            what = f"{rank_label(left).capitalize()} destroyed the process group."
            self.report = self._reported(cell, what)
            return
        rows: tuple[Row, ...] = ()
        what = rule = ""
        report, findings = self._inspector.conclude(report)
        if findings:
            what, rows, rule = _explained(findings[0], cell, self._answers)
        if cell is not None and self._interrupted_at is not None:
            what, rule = "The line was interrupted.", ""
        elif not what and report.verdict is not None:
            what = report.verdict.what
        if cell is not None:
            self.report = self._reported(cell, what, rows, rule, ok=False)
        else:  # for the next one
            self.report = CellReport("", ok=False, what=f"{what} This line was not run.")

    def add_variables(self, failures: Mapping[int, str]) -> None:
        """Add to the report what the next world has of the variables.

        Args:
            failures: Why a rank could not read its copy, or empty, by rank.
        """
        assert self.report is not None  # noqa: S101 - `_conclude` has made it
        self.gone |= {rank: "could not read the copy" for rank, why in failures.items() if why}
        kept = [rank for rank in self._ranks if rank not in self.gone]
        named = in_common({rank: names for rank, (_, names) in self.copies.items() if names})
        lost = "; ".join(f"{each.text} of {rank_label(each.ranks)}" for each in named)
        whose = f" of {rank_label(kept)}" if self.gone else ""
        text = f"The variables{whose} were kept{f', except {lost}' if lost else ''}."
        for each in in_common(self.gone):
            its = "its" if len(each.ranks) == 1 else "their"
            who = rank_label(each.ranks)
            lost = f"{who.capitalize()} {each.text}, and {its} variables" if each.text else ""
            text += f" {lost or f'The variables of {who}'} are lost."
        if self._waiting or self.report.rows:
            text += " Tensors of the failed call may hold partial results."
        self.report = replace(self.report, variables=text if kept else "All variables are lost.")


def _explained(
    finding: Finding, cell: Cell | None, results: Mapping[int, Any]
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
    line = "line (%" if shell else "cell (--"
    does = f"run this {line}only {','.join(map(str, sorted(chosen)))})"
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
    rule = f"{KINDS['p2p'].rule} Both must be in one {line.split(maxsplit=1)[0]}." if p2p else ""
    return f"{', and '.join(parts).capitalize()}.", rows, rule or KINDS["absent"].rule


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


def main() -> None:
    """Load torch, and run the worlds that the program asks for."""
    die_with_parent()
    if os.getppid() != int(sys.argv[2]):
        os._exit(0)
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the program, which asks us
    load_torch()
    gc.freeze()  # collecting torch's objects would take longer than all that follows

    program = Program(connection)
    world: World | None = None
    with suppress(OSError):  # the program has gone
        while not program.closed:
            if world is not None and world.next is not None:
                before = None if world.report is None else world
                world = World(program, world.next, before)
            elif isinstance(request := program.receive(), NewWorld):
                world = World(program, request.settings, None)
            else:
                program.answer("There are no ranks. Start a new world.", ok=False)
                continue
            try:
                world.run()
            except DistdemoError as error:
                program.answer(str(error), ok=False)
    os._exit(0)  # the ranks have ended; Python would take a second to free what torch has loaded


if __name__ == "__main__":
    main()
