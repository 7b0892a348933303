"""Ranks on this machine, started by torch.multiprocessing, watched until the last one is gone.

Whatever happens — a result, an exception, a killed rank, Ctrl-C, a timeout — ``run_world`` returns
how every rank ended, and no process or file of the world is left.
"""

from __future__ import annotations

import os
import pickle
import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launchers import stacks, verdict
from distdemo.launchers.channel import Receiver
from distdemo.launchers.interrupts import Interrupts
from distdemo.launchers.limits import raise_open_files
from distdemo.launchers.rendezvous import Rendezvous, rendezvous
from distdemo.launchers.start_method import StartMethod, choose
from distdemo.torch_import import load_torch
from distdemo.model import (
    NOT_STARTED,
    Died,
    Outcome,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Where,
    WorldReport,
    WorldSpec,
)

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

LOOK = 0.2  # seconds between looks at processes whose pipe is silent
SETTLE = 0.4  # seconds that others get to end by themselves after one failed
GRACE = 0.7  # seconds between asking a rank to stop and killing it
ANSWER = 0.3  # seconds that late ranks get to say where they are
KEPT_OUTPUT = 1 << 16  # bytes of a rank's captured output that are kept: the last ones


@dataclass(slots=True)
class _Member:
    """The launcher's view of one rank's process."""

    rank: int
    process: BaseProcess
    receiver: Receiver
    reader: Connection
    output: Connection | None
    said: bytearray
    phase: Phase = NOT_STARTED
    outcome: Outcome | None = None
    where: Where | None = None


def run_world(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    meanwhile: Callable[[], None] | None = None,
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world and say how each ended.

    Args:
        world: how many ranks, over which backend, on which device, for how long.
        target: gets a :class:`distdemo.launchers.rank.Rank` first. Under forkserver and spawn it
            and ``args`` have to be importable and picklable.
        args: the same for every rank.
        meanwhile: called once, in this process, when all ranks have been started.

    Raises:
        UsageError: the ranks can't be started this way.
        KeyboardInterrupt: after Ctrl-C, when all ranks are gone. Other signals are handed to
            their own handlers then; if those return, so does this, with ``interrupted_by`` set.
    """
    load_torch()
    method = choose(world.start_method, world.device)
    with Interrupts() as interrupts, rendezvous() as place:
        launcher = _Launcher(world, method, place, interrupts)
        try:
            launcher.start(target, args)
            if meanwhile is not None:
                meanwhile()
            launcher.watch()
        finally:
            launcher.end()
        report = launcher.report()
    interrupts.redeliver()
    return report


class _Launcher:
    """One world from its first process to its last."""

    def __init__(
        self, world: WorldSpec, method: StartMethod, place: Rendezvous, interrupts: Interrupts
    ) -> None:
        import torch.multiprocessing as mp

        self._world = world
        self._method = method
        self._place = place
        self._interrupts = interrupts
        self._context: BaseContext = mp.get_context(method.name)
        self._members: list[_Member] = []
        self._began = time.monotonic()
        self._deadline = self._began + world.timeout
        self._failed_at: float | None = None
        self._gate_reader, self._gate_writer = self._context.Pipe(duplex=False)

    # --------------------------------------------------------------------------------- start

    def start(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Start every rank, unless a signal comes in between."""
        raise_open_files(self._world)
        if self._method.name == "forkserver":
            _preload()
        for rank in range(self._world.world_size):
            if self._interrupts.received is not None:
                break
            self._members.append(self._start_one(rank, target, args))
        self._gate_reader.close()

    def _start_one(self, rank: int, target: Callable[..., Any], args: tuple[Any, ...]) -> _Member:
        from distdemo.launchers.rank import Assignment, live

        reader, writer = self._context.Pipe(duplex=False)
        output, pen = self._context.Pipe(duplex=False) if self._world.capture else (None, None)
        inherited = self._inherited(reader, output) if self._method.name == "fork" else ()
        assignment = Assignment(
            rank,
            self._world,
            self._place,
            way_back=writer,
            gate=self._gate_reader,
            output=pen,
            inherited=inherited,
            target=target,
            args=args,
        )
        process = self._context.Process(target=live, args=(assignment,), name=f"rank-{rank}")  # type: ignore[attr-defined]  # every context has it
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _not_picklable(self._method, error) from error
        except OSError as error:
            raise _no_process(rank, error) from error
        writer.close()
        if pen is not None:
            pen.close()
        if output is not None:
            os.set_blocking(output.fileno(), False)
        return _Member(rank, process, Receiver(reader.fileno()), reader, output, bytearray())

    def _inherited(self, reader: Connection, output: Connection | None) -> tuple[int, ...]:
        """What a forked rank finds open and must close: the launcher's ends of all pipes so far."""
        mine = [reader, self._gate_writer, *(member.reader for member in self._members)]
        mine += [m.output for m in self._members if m.output is not None]
        if output is not None:
            mine.append(output)
        return (*self._interrupts.descriptors(), *(connection.fileno() for connection in mine))

    # --------------------------------------------------------------------------------- watch

    def watch(self) -> None:
        """Return when every rank has reported, or when it is no use to wait any longer."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._interrupts, selectors.EVENT_READ)
            for member in self._members:
                selector.register(member.reader, selectors.EVENT_READ, (self._hear, member))
                if member.output is not None:
                    selector.register(member.output, selectors.EVENT_READ, (self._listen, member))
            next_look = time.monotonic() + LOOK
            while self._worth_waiting():
                for key, _ in selector.select(self._patience()):
                    if key.data is not None:
                        handle, member = key.data
                        if not handle(member):
                            selector.unregister(key.fileobj)
                if time.monotonic() >= next_look:
                    self._look_for_dead()
                    next_look = time.monotonic() + LOOK
        if time.monotonic() >= self._deadline and self._interrupts.received is None:
            self._ask_where()

    def _worth_waiting(self) -> bool:
        now = time.monotonic()
        if self._interrupts.received is not None or now >= self._deadline:
            return False
        if self._failed_at is not None and now >= self._failed_at + SETTLE:
            return False
        return any(member.outcome is None for member in self._members)

    def _patience(self) -> float:
        """Seconds until something may have to be done although no rank says anything."""
        ends = [self._deadline, time.monotonic() + LOOK]
        if self._failed_at is not None:
            ends.append(self._failed_at + SETTLE)
        return max(0.0, min(ends) - time.monotonic())

    def _hear(self, member: _Member) -> bool:
        """Take a rank's messages; False when there will be no more."""
        for message in member.receiver.receive():
            self._note(member, message)
        if member.receiver.closed and member.outcome is None:
            member.process.join(GRACE)
            self._look_at(member)
        return not member.receiver.closed

    def _listen(self, member: _Member) -> bool:
        """Take what a rank wrote to stdout and stderr; False when there will be no more."""
        if member.output is None:
            return False
        try:
            data = os.read(member.output.fileno(), KEPT_OUTPUT)
        except BlockingIOError:
            return True
        member.said += data
        del member.said[:-KEPT_OUTPUT]
        return bool(data)

    def _note(self, member: _Member, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "phase":
            step, name, at = rest
            member.phase = Phase(step, name, at - self._began)
            return
        at = rest[0] - self._began
        common: dict[str, Any] = {"rank": member.rank, "phase": member.phase, "at": at}
        if kind == "returned":
            member.outcome = _unpack(rest[1], common)
        elif kind == "exited":
            member.outcome = Died(exit_code=rest[1], **common)
        else:
            name, text, trace = rest[1:]
            lost = verdict.is_consequence(name, text)
            member.outcome = Raised(
                type=name, message=text, traceback=trace, consequence=lost, **common
            )
        self._mark_failure(member)

    def _look_for_dead(self) -> None:
        for member in self._members:
            if member.outcome is None and member.process.exitcode is not None:
                self._hear(member)
                self._look_at(member)

    def _look_at(self, member: _Member) -> None:
        """If a rank's process ended without a word, note how."""
        code = member.process.exitcode
        if member.outcome is not None or code is None:
            return
        at = time.monotonic() - self._began
        ending = {"signal": -code} if code < 0 else {"exit_code": code}
        member.outcome = Died(rank=member.rank, phase=member.phase, at=at, **ending)
        self._mark_failure(member)

    def _mark_failure(self, member: _Member) -> None:
        if self._failed_at is None and not isinstance(member.outcome, Returned):
            self._failed_at = time.monotonic()

    def _ask_where(self) -> None:
        """Have every late rank write its stack, and read what comes."""
        late = [m for m in self._members if m.outcome is None and m.phase.step >= 0]
        for member in late:
            _signal(member.process, stacks.SIGNAL)
        texts = dict.fromkeys((member.rank for member in late), "")
        until = time.monotonic() + ANSWER
        while (left := until - time.monotonic()) > 0:
            ready = wait([m.reader for m in late if not m.receiver.closed], left)
            if not ready:
                break
            for member in late:
                if member.reader in ready:
                    texts[member.rank] += member.receiver.receive_text()
        for member in late:
            member.where = stacks.locate(texts[member.rank])

    # ----------------------------------------------------------------------------------- end

    def end(self) -> None:
        """Let the ranks go, ask those that stay to stop, kill those that don't; forget nothing."""
        self._gate_writer.close()
        well = all(isinstance(member.outcome, Returned) for member in self._members)
        if not (well and self._interrupts.received is None and _gone(self._members, GRACE)):
            for ask in ("terminate", "kill"):
                for member in self._members:
                    if member.process.exitcode is None:
                        getattr(member.process, ask)()
                if _gone(self._members, GRACE):
                    break
        for member in self._members:
            member.process.join()
            self._listen(member)
            member.process.close()
            member.reader.close()
            if member.output is not None:
                member.output.close()

    def report(self) -> WorldReport:
        """How every rank ended; the ones that had no outcome by then timed out or were stopped."""
        received = self._interrupts.received
        late = received is None and self._failed_at is None
        outcomes = tuple(
            replace(self._final(member, late=late), output=member.said.decode(errors="replace"))
            for member in self._members
        )
        return WorldReport(
            world=self._world,
            outcomes=outcomes,
            verdict=verdict.judge(self._world, outcomes) if received is None else _INTERRUPTED,
            seconds=time.monotonic() - self._began,
            start_method=self._method.name,
            start_reason=self._method.reason,
            interrupted_by=received,
        )

    def _final(self, member: _Member, *, late: bool) -> Outcome:
        if member.outcome is not None:
            return member.outcome
        at = time.monotonic() - self._began
        if late:
            return TimedOut(rank=member.rank, phase=member.phase, at=at, where=member.where)
        return Stopped(rank=member.rank, phase=member.phase, at=at)


_INTERRUPTED = verdict.Verdict("The run was interrupted.", "All its ranks were stopped.", "")


def _gone(members: Iterable[_Member], seconds: float) -> bool:
    """Whether all processes end within so many seconds."""
    until = time.monotonic() + seconds
    alive = [member.process for member in members]
    while alive := [process for process in alive if process.exitcode is None]:
        left = until - time.monotonic()
        if left <= 0:
            return False
        # A process that a rank left behind may hold its sentinel open, so look again soon.
        wait([process.sentinel for process in alive], min(left, LOOK))
    return True


def _signal(process: BaseProcess, number: int) -> None:
    try:
        if process.pid is not None:
            os.kill(process.pid, number)
    except ProcessLookupError:
        pass  # it ended in this moment


def _preload() -> None:
    """Have the forkserver import torch before it forks the first rank.

    A forkserver that the program started before, without torch, is used as it is: slower, right.
    """
    import torch.multiprocessing as mp

    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["distdemo.launchers.rank", "distdemo.launchers.api"])


def _unpack(payload: bytes, common: dict[str, Any]) -> Outcome:
    try:
        return Returned(value=pickle.loads(payload), **common)  # noqa: S301 - a private pipe of our own child
    except Exception as error:  # noqa: BLE001 - unpickling a user's object may raise anything
        text = f"the value that it returned can't be read back here: {error}"
        return Raised(type=type(error).__qualname__, message=text, traceback="", **common)


def _not_picklable(method: StartMethod, error: Exception) -> UsageError:
    return UsageError(
        "The function or its arguments can't be sent to a new process.",
        f"The start method is {method.name} ({method.reason}), which needs to pickle them: {error}",
        "Move the function to the top level of a module (no lambda, no local function), or launch "
        "with start_method='fork' before the program computes or starts threads.",
    )


def _no_process(rank: int, error: OSError) -> UsageError:
    return UsageError(
        f"Rank {rank} could not be started.",
        str(error),
        "Start fewer ranks, or raise the limits on processes, open files and memory.",
    )
