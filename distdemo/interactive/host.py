"""Process that ranks are forked from: ``python -m distdemo.interactive.host FD PARENT``.

It has loaded torch and has computed nothing, so its forks are safe and fast, whatever the program
that started it has done. It runs one world after another, and relays requests to the ranks.
"""

from __future__ import annotations

import gc
import os
import secrets
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

from distdemo.errors import DistdemoError
from distdemo.interactive.records import (
    COPY,
    RESTORE,
    Calls,
    Cell,
    CellError,
    Copy,
    Done,
    Interrupt,
    Names,
    NewWorld,
    Output,
    Push,
    Request,
    Settings,
)
from distdemo.launcher.process_tree import die_with_parent
from distdemo.launcher.records import Outcome, UserProgram, WorldReport, WorldSpec
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.verdict import ranks_of
from distdemo.sanitizer.records import END_OF_CELL, CallCount, Finding, Row
from distdemo.sanitizer.rules import KINDS

if TYPE_CHECKING:
    from distdemo.sanitizer.inspector import Inspector

DEADLINE_S = 1e6  # of a world: its cells have none
COPY_S = 1.0  # seconds for the ranks to copy their variables
INTERRUPT_S = 0.7  # seconds from an interrupt until a world is replaced
MAX_OUTPUT = 1 << 20  # bytes of one cell's output on one rank that are passed on


@dataclass(slots=True)
class Legacy:
    """What a world leaves to the next one.

    Attributes:
        answer: Answer to the request that its end interrupted; sent once the next world is ready.
        copies: Variables by rank.
    """

    answer: Done = field(default_factory=Done)
    copies: dict[int, bytes] = field(default_factory=dict)


class World:
    """One world, from its start until it ends.

    A thread relays the program's requests to the ranks; the launcher's loop gets their answers.

    Args:
        connection: Connection to the program.
        settings: Size and backend.
        legacy: What the world before it left.

    Attributes:
        closed: True if the program has closed the connection.
        next: Settings of the next world.
        legacy: What this world leaves to it.
    """

    def __init__(self, connection: Connection, settings: Settings, legacy: Legacy) -> None:
        self.closed = False
        self.next: Settings | None = None
        self.legacy = Legacy()
        self._connection = connection
        self._settings = settings
        self._before = legacy
        self._ranks = range(settings.world_size)
        self._marker = secrets.token_bytes(16)
        self._channels: list[tuple[Connection, Connection]] = []
        self._wake_reader, self._wake_writer = os.pipe()
        self._lock = threading.Lock()
        self._pids: dict[int, int] = {}
        self._number = 0
        self._request: Request | None = None
        self._waiting = set(self._ranks)  # ranks that haven't answered
        self._unmarked: set[int] = set()  # ranks whose output hasn't arrived to the end
        self._held: dict[int, bytes] = {}  # output that may be the beginning of a marker
        self._passed: dict[int, int] = {}  # bytes of output that were passed on
        self._values: dict[int, str] = {}
        self._errors: dict[int, CellError] = {}
        self._answers: dict[int, Any] = {}
        self._interrupted_at: float | None = None
        self._copying_at: float | None = None
        self._copying: set[int] = set()
        self._lost: dict[int, tuple[str, ...]] = {}
        self._inspector: Inspector | None = None
        self._warned = 0  # warnings that were shown

    def run(self) -> None:
        """Run the world until it is replaced or the program closes the connection.

        Raises:
            DistdemoError: It can't be started.
        """
        from distdemo.backends import prepared
        from distdemo.interactive.rank import serve
        from distdemo.launcher.local import run_world
        from distdemo.sanitizer.inspector import Inspector

        world = prepared(_spec(self._settings))
        if self._settings.sanitize:
            self._inspector = Inspector(world)
        notes = None if self._inspector is None else replace(self._inspector.notes, buffers=True)
        self._channels = [Pipe() for _ in self._ranks]
        relay = threading.Thread(target=self._relay)
        try:
            report = run_world(
                world,
                serve,
                (self._channels, self._marker, notes),
                after_start=relay.start,
                on_message=self._on_message,
                on_output=self._on_output,
                poll=self._poll,
            )
        finally:
            os.write(self._wake_writer, b"x")
            if relay.ident is not None:
                relay.join()
            for fd in (self._wake_reader, self._wake_writer):
                os.close(fd)
            for pair in self._channels:
                for end in pair:
                    end.close()
        if not self.closed and self.next is None:
            self._conclude(report)

    # ------------------------------------------------------------------------------- requests

    def _relay(self) -> None:
        """Pass requests on to the ranks as they arrive."""
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_reader in ready:
                return
            try:
                request = self._connection.recv()
            except (EOFError, OSError):
                self.closed = True
                return
            with self._lock:
                self._handle(request)

    def _handle(self, request: Request) -> None:
        if isinstance(request, Interrupt):
            if self._waiting and isinstance(self._request, Cell):
                self._interrupted_at = time.monotonic()
                for rank in self._waiting:
                    with suppress(ProcessLookupError):
                        os.kill(self._pids[rank], signal.SIGINT)
        elif isinstance(request, NewWorld):
            if why := _refused(request.settings):
                self._connection.send(Done(ok=False, what=why))
            else:
                self.next = request.settings
        elif isinstance(request, Calls):
            none: tuple[tuple[CallCount, ...], str] = ((), "")
            calls = none if self._inspector is None else self._inspector.calls()
            self._connection.send(Done(payload=calls))
        else:
            self._number += 1
            self._request = request
            self._interrupted_at = None
            for each in (self._values, self._errors, self._answers, self._passed):
                each.clear()
            for rank in [0] if isinstance(request, Names) else self._ranks:
                asked: Request | None = request
                if isinstance(request, Cell):
                    self._unmarked.add(rank)
                    if request.ranks is not None and rank not in request.ranks:
                        asked = None
                self._waiting.add(rank)
                self._send(rank, self._number, asked)

    def _send(self, rank: int, number: int, what: Request | Copy | None) -> None:
        with suppress(OSError):  # it has exited
            self._channels[rank][0].send((number, what))

    # -------------------------------------------------------------------------------- answers

    def _on_message(self, rank: int, message: tuple[Any, ...]) -> None:
        kind, number, *answer = message
        with self._lock:
            if number == COPY:
                self._copying.discard(rank)
                if not isinstance(answer[0], CellError):
                    self.legacy.copies[rank], self._lost[rank] = answer[0]
                return
            self._waiting.discard(rank)
            if kind == "ready":
                self._pids[rank] = answer[0]
                if not self._waiting:
                    self._restore()
            elif number == RESTORE:
                if isinstance(answer[0], CellError):
                    self._before.answer.lost[rank] = None
                if not self._waiting:
                    self._connection.send(self._before.answer)
            elif kind == "done":
                value, error = answer
                if value:
                    self._values[rank] = value
                if error is not None:
                    self._errors[rank] = error
                self._finish_if_done()
            else:
                self._answers[rank] = answer[0]
                self._finish_if_done()

    def _restore(self) -> None:
        """Give the new ranks the variables of the old ones."""
        copies = self._before.copies
        if not copies:
            self._connection.send(self._before.answer)
        self._waiting |= copies.keys()
        for rank, copy in copies.items():
            self._send(rank, RESTORE, Push({rank: copy}))

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
        if not data or room <= 0:
            return
        self._passed[rank] = passed + len(data)
        more = b"\n[... the rest is left out ...]\n" if len(data) >= room else b""
        self._connection.send(Output(rank, data[:room] + more))

    def _finish_if_done(self) -> None:
        """Answer the request if all ranks have."""
        if self._request is None or self._waiting:
            return
        if isinstance(self._request, Cell):
            if self._unmarked:
                return
            found, warnings = (False, []) if self._inspector is None else self._inspector.check()
            if found:
                return  # the next poll ends the world
            new = warnings[self._warned :]
            self._warned += len(new)
            what, rows = (f"Warning: {new[0].what}", new[0].rows) if new else ("", ())
            done = Done(not self._errors, self._values, self._errors, what, rows)
        else:
            failed = {r: a for r, a in self._answers.items() if isinstance(a, CellError)}
            done = Done(not failed, errors=failed, payload=self._answers)
        self._request = None
        self._connection.send(done)

    # -------------------------------------------------------------------------------- the end

    def _poll(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Return True if the world should end; first the ranks copy their variables."""
        with self._lock:
            if self.closed or self.next is not None:
                return True
            if self._copying_at is not None:
                self._copying -= {rank for rank, each in enumerate(outcomes) if each is not None}
                return not self._copying or time.monotonic() - self._copying_at > COPY_S
            interrupted = self._interrupted_at if self._waiting else None
            late = interrupted is not None and time.monotonic() - interrupted > INTERRUPT_S
            found = self._inspector is not None and self._inspector.poll(outcomes)
            if late or found or any(outcomes):
                self._copying_at = time.monotonic()
                self._copying = set(self._ranks)
                for rank in self._ranks:
                    self._send(rank, COPY, Copy())
            return False

    def _conclude(self, report: WorldReport) -> None:
        """Keep the answer to the request that the world's end interrupted."""
        rows: tuple[Row, ...] = ()
        what = rule = ""
        finding = None
        if self._inspector is not None:
            report, findings = self._inspector.conclude(report)
            finding = findings[0] if findings else None
        if self._interrupted_at is not None:
            what = "The cell was interrupted."
        elif finding is not None:
            what, rows, rule = _explained(finding, self._errors)
        elif report.verdict is not None:
            what = report.verdict.what
        lost = {rank: self._lost.get(rank) for rank in self._ranks if self._lost.get(rank) != ()}
        self.legacy.answer = Done(
            False, self._values, self._errors, what, rows, rule, replaced=True, lost=lost
        )
        self.next = self._settings


def _explained(
    finding: Finding, errors: Mapping[int, CellError]
) -> tuple[str, tuple[Row, ...], str]:
    """Return a finding in words that fit a cell: some ranks have finished it, others wait."""
    rows = tuple(row for row in finding.rows if not row.did.startswith(END_OF_CELL))
    finished = {rank for row in finding.rows if row not in rows for rank in row.ranks}
    waiting = sorted({rank for row in rows for rank in row.ranks} - finished)
    if not finished or not waiting or finding.kind == "absent":
        return finding.what, rows, finding.rule
    raised = sorted(finished & errors.keys())
    ended = sorted(finished - errors.keys())
    parts = [f"{ranks_of(raised)} raised an error"] if raised else []
    if ended:
        parts.append(f"{ranks_of(ended)} {'has' if len(ended) == 1 else 'have'} finished")
    parts.append(f"{ranks_of(waiting)} {'waits' if len(waiting) == 1 else 'wait'}")
    first, *others = parts
    text = ", and ".join([first, *(f"{each[0].lower()}{each[1:]}" for each in others)])
    return f"{text}.", rows, KINDS["absent"].rule


def _spec(settings: Settings) -> WorldSpec:
    return WorldSpec(
        settings.world_size,
        settings.backend,
        deadline=DEADLINE_S,
        start_method="fork",
        capture=True,
        user_program=UserProgram(stdin=-1),
    )


def _refused(settings: Settings) -> str:
    """Return the reason why a world can't be started, or an empty text."""
    from distdemo.api import check_world
    from distdemo.backends import prepared

    try:
        world = _spec(settings)
        check_world(world)
        prepared(world)
    except DistdemoError as error:
        return str(error)
    return ""


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
    import distdemo.interactive.rank
    import distdemo.launcher.rank
    import distdemo.sanitizer.hooks  # noqa: F401 - once, for all ranks

    with suppress(EOFError, OSError):
        settings: Settings | None = None
        legacy = Legacy()
        while True:
            if settings is None:
                settings = connection.recv().settings
                if why := _refused(settings):
                    connection.send(Done(ok=False, what=why))
                    settings = None
                    continue
            world = World(connection, settings, legacy)
            try:
                world.run()
            except DistdemoError as error:
                connection.send(Done(ok=False, what=str(error)))
                settings, legacy = None, Legacy()
                continue
            if world.closed:
                return
            settings, legacy = world.next, world.legacy


if __name__ == "__main__":
    main()
