"""Ranks on this machine, started by torch.multiprocessing, watched until the last one is gone.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``run_world`` tells
how every rank ended, and no process or file of the world is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launchers import verdict
from distdemo.launchers.channel import Receiver, Work, dumps_work
from distdemo.launchers.interrupts import Interrupts
from distdemo.launchers.limits import check_loopback, open_files
from distdemo.launchers.main_module import check_main_file
from distdemo.launchers.member import Member, gone
from distdemo.launchers.rendezvous import Rendezvous, rendezvous
from distdemo.launchers.start_method import StartMethod, choose
from distdemo.launchers.watch import End, Hear, Watch
from distdemo.model import WorldSpec
from distdemo.outcomes import Returned, Verdict, WorldReport
from distdemo.torch_import import load_torch

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

GRACE = 0.7  # seconds between asking a rank to stop and killing it

_INTERRUPTED = Verdict("The run was interrupted.", "All its ranks were stopped.", "")


def run_world(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    meanwhile: Callable[[], object] | None = None,
    hear: Hear | None = None,
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world and say how each ended.

    Args:
        world: how many ranks, over which backend, on which device, for how long.
        target: gets a :class:`distdemo.launchers.rank.Rank` first. Under forkserver and spawn it
            and ``args`` have to be importable and picklable.
        args: the same for every rank.
        meanwhile: called once, in this process, when all ranks have been started.
        hear: called in this process as ``hear(rank, value)`` for each value that a rank tells
            (``Rank.tell``), in the order of arrival. True ends the world at once.

    Raises:
        UsageError: the ranks can't be started this way.
        KeyboardInterrupt: after Ctrl-C, when all ranks are gone. Other signals are handed to
            their own handlers then; if those return, so does this, with ``interrupted_by`` set.
        Exception: whatever ``meanwhile`` or ``hear`` raises, when all ranks are gone.
    """
    load_torch()
    check_loopback()
    method = choose(world.start_method, world.device)
    interrupts = Interrupts()
    try:
        with interrupts, rendezvous() as place, open_files(world):
            launcher = _Launcher(world, method, place, interrupts)
            try:
                launcher.start(target, args)
                if meanwhile is not None:
                    meanwhile()
                launcher.watch(hear)
            finally:
                launcher.end()
            return launcher.report()
    finally:
        interrupts.redeliver()


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
        self._end = End.DONE
        self._gate_reader, self._gate_writer = self._context.Pipe(duplex=False)

    # --------------------------------------------------------------------------------- start

    def start(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Start every rank, unless a signal comes in between."""
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
        check_main_file(f"The start method is {self._method.name} ({self._method.reason})")
        try:
            return Work(packed=dumps_work(target, args))
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

    def watch(self, hear: Hear | None) -> None:
        """Return when every rank has reported, or when it is no use to wait any longer."""
        watch = Watch(self._world, self._members, self._interrupts, hear, self._deadline)
        self._end = watch.until_the_end()

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
        late = received is None and self._end.late
        outcomes = tuple(member.final(late=late) for member in self._members)
        stalled = self._end is End.STALLED
        judged = verdict.judge(self._world, outcomes, stalled=stalled)
        return WorldReport(
            world=self._world,
            outcomes=outcomes,
            verdict=judged if received is None else _INTERRUPTED,
            seconds=time.monotonic() - self._began,
            start_method=self._method.name,
            start_reason=self._method.reason,
            interrupted_by=received,
        )


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
