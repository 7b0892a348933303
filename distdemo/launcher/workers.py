"""The ranks that this process starts and looks after, from the first process to the last.

All ranks of a world on one machine, or one site's part of a world that spans several.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher.channel import Receiver, Work, dumps_work
from distdemo.launcher.guests import Household, stdin_of
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.local_ranks import LocalRanks
from distdemo.launcher.main_module import check_main_file
from distdemo.launcher.records import Outcome, Returned, WorldSpec
from distdemo.launcher.start_method import StartMethod
from distdemo.launcher.watch import End, Hear, Listener, Watch
from distdemo.launcher.wires.contract import Wire
from distdemo.launcher.worker import Worker, gone

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

GRACE = 0.7  # seconds between asking a rank to stop and killing it


class Workers:
    """The ranks of one site.

    Attributes:
        ended: why the wait for them was over.
        began: when the first was started, on the monotonic clock.

    Args:
        world: the whole world that they are ranks of.
        site: which of its ranks these are.
        method: how their processes are started.
        interrupts: signals that end the wait.
        private: further descriptors of this process that a forked rank has to close.
        wire: how the ranks find each other, where the backend does not meet at the store.
    """

    def __init__(  # noqa: PLR0913 - all that ranks share, once
        self,
        world: WorldSpec,
        site: LocalRanks,
        method: StartMethod,
        interrupts: Interrupts,
        private: Sequence[int] = (),
        *,
        wire: Wire | None = None,
    ) -> None:
        import torch.multiprocessing as mp

        self.ended = End.DONE
        self.began = time.monotonic()
        self._world = world
        self._site = site
        self._method = method
        self._interrupts = interrupts
        self._private = private
        self._wire = Wire() if wire is None else wire
        self._context: BaseContext = mp.get_context(method.name)
        self._workers: list[Worker] = []
        self._household = None if world.user_program is None else Household()
        self._gate_reader, self._gate_writer = self._context.Pipe(duplex=False)

    # --------------------------------------------------------------------------------- start

    def start(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Start every rank, unless a signal comes in between."""
        if self._method.name == "forkserver":
            _preload(self._context, self._world.provider)
        elif self._method.name == "fork" and self._world.provider:
            import_module(self._world.provider)  # once, for all ranks
        work = Work(target, args) if self._method.name == "fork" else self._packed(target, args)
        for rank in self._site.ranks:
            if self._interrupts.received is not None or not self._wire.ready(rank):
                break
            self._workers.append(self._start_one(rank, work))
        self._gate_reader.close()

    def _packed(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Work:
        """The function and its arguments by value, so that ranks share no tensor, as under fork."""
        check_main_file(f"The start method is {self._method.name} ({self._method.reason})")
        try:
            return Work(packed=dumps_work(target, args))
        except Exception as error:
            raise _not_picklable(self._method, error) from error

    def _start_one(self, rank: int, work: Work) -> Worker:
        from distdemo.launcher.rank import Assignment, live

        ticket, guest = self._wire.ticket(rank), self._world.user_program
        reader, writer = self._context.Pipe(duplex=False)
        captured = self._world.capture and not (guest and guest.terminal == rank)
        output, pen = self._context.Pipe(duplex=False) if captured else (None, None)
        stdin = stdin_of(guest, rank)
        assignment = Assignment(
            rank,
            self._world,
            self._site,
            way_back=writer,
            gate=self._gate_reader,
            output=pen,
            stdin=stdin,
            ticket=ticket,
            inherited=self._inherited(reader, output),
            work=work,
        )
        process = self._context.Process(target=live, args=(assignment,), name=f"rank-{rank}")  # type: ignore[attr-defined]  # every context has it
        try:
            process.start()
        except OSError as error:
            raise _no_process(rank, error) from error
        self._wire.started(rank)
        if self._household is not None:
            self._household.watch(process.pid)
        for end in (writer, pen, stdin):
            if end is not None:
                end.close()
        if output is not None:
            os.set_blocking(output.fileno(), False)
        receiver = Receiver(reader.fileno())
        own_group = guest is not None and not guest.group
        return Worker(rank, self.began, process, reader, receiver, output, own_group=own_group)

    def _inherited(self, *ends: Connection | None) -> tuple[int, ...]:
        """What a forked rank finds open and must close: the launcher's ends of all pipes so far."""
        if self._method.name != "fork":
            return ()
        mine = [self._gate_writer, *ends]
        mine += [end for worker in self._workers for end in (worker.reader, worker.output)]
        return (
            *self._private,
            *self._wire.descriptors(),
            *(self._household.descriptors() if self._household else ()),
            *self._interrupts.descriptors(),
            *(end.fileno() for end in mine if end is not None),
        )

    def watch(
        self,
        hear: Hear | None,
        listeners: Sequence[Listener] = (),
        wrote: Callable[[int, bytes], object] | None = None,
    ) -> None:
        """Return when every rank has reported, or when it is no use to wait any longer.

        Args:
            hear: called for each value that a rank tells.
            listeners: what else has to be heard meanwhile.
            wrote: called for each piece that a captured rank writes, until it raises.
        """
        deadline = self.began + self._world.deadline
        heard = (*listeners, *self._wire.listeners)
        watch = Watch(self._world, self._workers, self._interrupts, hear, deadline, listeners=heard)
        if wrote is not None:
            reader = _Reader(wrote)
            for worker in self._workers:
                worker.wrote = reader
        self.ended = watch.until_the_end()

    @property
    def well(self) -> bool:
        """Whether every rank has returned."""
        return all(isinstance(worker.outcome, Returned) for worker in self._workers)

    # ----------------------------------------------------------------------------------- end

    def end(self) -> None:
        """Let the ranks go, ask those that stay to stop, kill those that don't; forget nothing."""
        self._gate_writer.close()
        quiet = self.well and self._interrupts.received is None
        if not (quiet and gone(self._workers, self._site.farewell)):
            self._stop()
        if self._household is not None:
            self._household.clear()
        for worker in self._workers:
            worker.close()

    def _stop(self) -> None:
        asks = [(signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)]
        if self._household is not None and self._interrupts.received == signal.SIGINT:
            # Their session does not hear the terminal's, and a program may have work to save.
            asks = [(signal.SIGINT, 1.5 * GRACE), (signal.SIGTERM, GRACE / 2), asks[1]]
        for ask, patience in asks:
            for worker in self._workers:
                if worker.process.exitcode is None:
                    worker.signal(ask)
            if gone(self._workers, patience):
                return

    def outcomes(self) -> tuple[Outcome, ...]:
        """How each rank ended; those that had not by then ran out of time or were stopped."""
        late = self._interrupts.received is None and self.ended.late
        return tuple(worker.final(late=late) for worker in self._workers)


class _Reader:
    """Whoever reads what ranks write; one that has raised, as its own reader is gone, is left."""

    def __init__(self, read: Callable[[int, bytes], object]) -> None:
        self._read = read
        self._able = True

    def __call__(self, rank: int, piece: bytes) -> None:
        if self._able:
            self._able = False
            self._read(rank, piece)
            self._able = True


def _preload(context: BaseContext, provider: str) -> None:
    """Have the forkserver import torch, and what ranks need besides, before it forks the first.

    A forkserver that the program started before, without torch, is used as it is: slower, right.
    """
    more = [provider] if provider else []
    context.set_forkserver_preload(["distdemo.launcher.forkserver", *more])


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
