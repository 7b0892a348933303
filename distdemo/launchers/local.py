"""Ranks on this machine, started by torch.multiprocessing, watched until the last one is gone.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``run_world`` tells
how every rank ended, and no process or file of the world is left.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launchers import stacks, verdict
from distdemo.launchers.channel import Receiver, Work, dumps
from distdemo.launchers.interrupts import Interrupts
from distdemo.launchers.limits import check_loopback, raise_open_files
from distdemo.launchers.member import LOOK, Member, gone
from distdemo.launchers.rendezvous import Rendezvous, rendezvous
from distdemo.launchers.start_method import StartMethod, choose
from distdemo.model import WorldSpec
from distdemo.outcomes import Returned, Verdict, WorldReport
from distdemo.torch_import import load_torch

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

SETTLE = 0.4  # seconds that others get to end by themselves after one failed
GRACE = 0.7  # seconds between asking a rank to stop and killing it
ANSWER = 0.3  # seconds that late ranks get to say where they are

_INTERRUPTED = Verdict("The run was interrupted.", "All its ranks were stopped.", "")


def run_world(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    meanwhile: Callable[[], object] | None = None,
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
    check_loopback()
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
        self._members: list[Member] = []
        self._began = time.monotonic()
        self._deadline = self._began + world.timeout
        self._failed_at: float | None = None
        self._gate_reader, self._gate_writer = self._context.Pipe(duplex=False)

    # --------------------------------------------------------------------------------- start

    def start(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Start every rank, unless a signal comes in between."""
        raise_open_files(self._world)
        if self._method.name == "forkserver":
            _preload(self._context)
        work = Work(target, args) if self._method.name == "fork" else self._packed(target, args)
        for rank in range(self._world.world_size):
            if self._interrupts.received is not None:
                break
            self._members.append(self._start_one(rank, work))
        self._gate_reader.close()

    def _packed(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Work:
        """The function and its arguments by value, so that ranks share no tensor, as under fork."""
        try:
            return Work(packed=dumps((target, args)))
        except Exception as error:
            raise _not_picklable(self._method, error) from error

    def _start_one(self, rank: int, work: Work) -> Member:
        from distdemo.launchers.rank import Assignment, live

        reader, writer = self._context.Pipe(duplex=False)
        output, pen = self._context.Pipe(duplex=False) if self._world.capture else (None, None)
        assignment = Assignment(
            rank,
            self._world,
            self._place,
            way_back=writer,
            gate=self._gate_reader,
            output=pen,
            inherited=self._inherited(reader, output),
            work=work,
        )
        process = self._context.Process(target=live, args=(assignment,), name=f"rank-{rank}")  # type: ignore[attr-defined]  # every context has it
        try:
            process.start()
        except OSError as error:
            raise _no_process(rank, error) from error
        writer.close()
        if pen is not None:
            pen.close()
        if output is not None:
            os.set_blocking(output.fileno(), False)
        return Member(rank, self._began, process, reader, Receiver(reader.fileno()), output)

    def _inherited(self, *ends: Connection | None) -> tuple[int, ...]:
        """What a forked rank finds open and must close: the launcher's ends of all pipes so far."""
        if self._method.name != "fork":
            return ()
        mine = [self._gate_writer, *ends]
        mine += [end for member in self._members for end in (member.reader, member.output)]
        return (
            *self._interrupts.descriptors(),
            *(end.fileno() for end in mine if end is not None),
        )

    # --------------------------------------------------------------------------------- watch

    def watch(self) -> None:
        """Return when every rank has reported, or when it is no use to wait any longer."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._interrupts, selectors.EVENT_READ)
            for member in self._members:
                selector.register(member.reader, selectors.EVENT_READ, member.hear)
                if member.output is not None:
                    selector.register(member.output, selectors.EVENT_READ, member.listen)
            next_look = time.monotonic() + LOOK
            while self._worth_waiting():
                for key, _ in selector.select(self._patience()):
                    if key.data is not None and not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_look:
                    for member in self._members:
                        member.look()
                    next_look = time.monotonic() + LOOK
        if self._interrupts.received is None and self._failed_at is None:
            late = [member for member in self._members if member.outcome is None]
            if late:
                self._ask_where(late)

    def _worth_waiting(self) -> bool:
        now = time.monotonic()
        if self._failed_at is None and any(_failed(member) for member in self._members):
            self._failed_at = now
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

    def _ask_where(self, late: list[Member]) -> None:
        """Have every late rank write its stack, and read what comes."""
        asked = {member.reader: member for member in late if member.phase.step >= 0}
        for member in asked.values():
            member.signal(stacks.SIGNAL)
        texts = dict.fromkeys((member.rank for member in late), "")
        until = time.monotonic() + ANSWER
        while asked and (left := until - time.monotonic()) > 0:
            for reader in wait(list(asked), left):
                member = asked[reader]  # type: ignore[index]  # only connections were waited for
                texts[member.rank] += member.receiver.receive_text()
                if member.receiver.closed:
                    del asked[reader]  # type: ignore[arg-type]  # as above
        for member in late:
            member.where = stacks.locate(texts[member.rank])

    # ----------------------------------------------------------------------------------- end

    def end(self) -> None:
        """Let the ranks go, ask those that stay to stop, kill those that don't; forget nothing."""
        self._gate_writer.close()
        well = all(isinstance(member.outcome, Returned) for member in self._members)
        if not (well and self._interrupts.received is None and gone(self._members, GRACE)):
            self._stop()
        for member in self._members:
            member.close()

    def _stop(self) -> None:
        for ask in ("terminate", "kill"):
            for member in self._members:
                if member.process.exitcode is None:
                    getattr(member.process, ask)()
            if gone(self._members, GRACE):
                return

    def report(self) -> WorldReport:
        """How every rank ended; the ones that had no outcome by then timed out or were stopped."""
        received = self._interrupts.received
        late = received is None and self._failed_at is None
        outcomes = tuple(member.final(late=late) for member in self._members)
        return WorldReport(
            world=self._world,
            outcomes=outcomes,
            verdict=verdict.judge(self._world, outcomes) if received is None else _INTERRUPTED,
            seconds=time.monotonic() - self._began,
            start_method=self._method.name,
            start_reason=self._method.reason,
            interrupted_by=received,
        )


def _failed(member: Member) -> bool:
    return member.outcome is not None and not isinstance(member.outcome, Returned)


def _preload(context: BaseContext) -> None:
    """Have the forkserver import torch before it forks the first rank.

    A forkserver that the program started before, without torch, is used as it is: slower, right.
    """
    context.set_forkserver_preload(["distdemo.launchers.forkserver"])


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
