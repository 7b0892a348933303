"""Start, watch and stop the ranks of this process.

These are all ranks of a world on one machine, or one process's share of a joined world.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from distdemo.errors import UsageError
from distdemo.launcher import stacks
from distdemo.launcher.messages import Receiver, dumps_work
from distdemo.launcher.pmi import PmiServer
from distdemo.launcher.process_tree import Activity, ProcessTree
from distdemo.launcher.records import Outcome, Returned, WorldSpec
from distdemo.launcher.rendezvous import LocalRanks
from distdemo.launcher.start_method import StartMethod, preload
from distdemo.launcher.worker import OnMessage, OnOutput, Poll, Relay, Worker
from distdemo.platform import system
from distdemo.signals import Interrupts

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from distdemo.launcher.rank_process import Work

TERM_TIMEOUT_S = 0.7  # from SIGTERM until SIGKILL
POLL_S = 0.2  # seconds between calls of ``Callbacks.poll``
OTHERS_TIMEOUT_S = 0.4  # for the other ranks to exit on their own after one failed
STACKS_TIMEOUT_S = 1.0  # for late ranks to write their stacks, at most
QUIET_TIMEOUT_S = 0.05  # of silence, after which stacks are complete
MAX_READS = 32  # of a rank's output at once: more than fits into a pipe


class StopReason(Enum):
    """Reason for which the launcher stopped waiting."""

    DONE = auto()  # every rank has ended
    FAILED = auto()  # a rank failed, and the other ranks had `OTHERS_TIMEOUT_S` seconds to exit
    TIMED_OUT = auto()
    STALLED = auto()  # no progress for longer than the world allows
    ENDED_EARLY = auto()  # a callback returned True, or another process ended the world
    INTERRUPTED = auto()


class Listener(Protocol):
    """Another source of events while ranks run."""

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop the world, or None."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when there are messages."""

    def on_message(self) -> bool:
        """Handle the messages that have arrived, without waiting; False at end of file."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Functions that the launcher calls in its own process while ranks run.

    Attributes:
        after_start: Called once when all ranks have been started.
        on_message: Called as ``on_message(rank, value)`` for each value that a rank sends
            (``Rank.send``), in order of arrival. True ends the world at once.
        on_output: Called as ``on_output(rank, piece)`` with the output of captured ranks as it
            arrives, and periodically with an empty piece.
        poll: Called periodically with the outcome of each rank, None for one that runs. True ends
            the world at once.
        has_progress: Called after `poll`; True if ranks have done something since the last time.
        relay: Called periodically in a process without rank 0, for further values that its ranks
            have for ``on_message``.
    """

    after_start: Callable[[], object] | None = None
    on_message: OnMessage | None = None
    on_output: OnOutput | None = None
    poll: Poll | None = None
    has_progress: Callable[[], bool] | None = None
    relay: Relay | None = None


@dataclass(slots=True)
class Peers:
    """Ranks of the world that other processes started; a world on one machine has none.

    Attributes:
        awaited: Number of these ranks whose outcomes this process waits for.
        outcomes: Outcomes of these ranks so far.
        failed_at: Time of the first failure among them, on the monotonic clock, or None.
        failed: True if one of them failed before this process stopped the world.
        stalled: True if they made no progress for too long.
        interrupted: True if a signal to another process ended its ranks.
    """

    awaited: int = 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    failed_at: float | None = None
    failed: bool = False
    stalled: bool = False
    interrupted: bool = False

    @property
    def running(self) -> bool:
        """True if this process must wait for the outcomes of other ranks."""
        return len(self.outcomes) < self.awaited


class Workers:
    """The ranks of this process.

    Attributes:
        world: Whole world that they belong to.
        stop_reason: Reason for which the wait ended.
        started_at: Start of the first rank, on the monotonic clock.
        interrupts: Signals that end the wait.

    Args:
        world: Whole world that they belong to.
        local_ranks: Ranks to start.
        method: Start method of their processes.
        interrupts: Signals that end the wait.
        peers: Ranks of other processes.
        descriptors: Further descriptors of this process that forked ranks must close.
        pmi: PMI server of ranks over MPI.
    """

    def __init__(
        self,
        world: WorldSpec,
        local_ranks: LocalRanks,
        method: StartMethod,
        interrupts: Interrupts,
        peers: Peers,
        *,
        descriptors: Sequence[int] = (),
        pmi: PmiServer | None = None,
    ) -> None:
        self.stop_reason = StopReason.DONE
        self.started_at = time.monotonic()
        self.world = world
        self.interrupts = interrupts
        self._local_ranks = local_ranks
        self._method = method
        self._peers = peers
        self._pmi = pmi
        self._own = [*descriptors, *interrupts.descriptors]  # a forked rank must close them
        self._tree: ProcessTree | None = None
        self._exit_writer: Connection | None = None
        self._workers: list[Worker] = []
        self._running: set[Worker] = set()
        self._callbacks = Callbacks()
        self._deadline = self.started_at + world.deadline
        self._failed_at: float | None = None
        self._progress_at: float | None = None  # None until the first message of a rank
        self._ended_early = False
        self._is_showing = False  # True within the callback for output, and after it has raised
        self._activity: Activity | None = None

    # ------------------------------------------------------------------------------------ starting

    def start(
        self, target: Callable[..., Any], args: tuple[Any, ...], modules: Sequence[str] = ()
    ) -> None:
        """Start every rank; stop at a signal.

        Args:
            target: Function for every rank.
            args: Its arguments after the rank.
            modules: Modules to import once for all ranks, if they are forked.
        """
        import torch.multiprocessing as mp

        context: Any = mp.get_context(self._method.name)
        modules = [*modules, self.world.provider] if self.world.provider else modules
        work: Work = (target, args)
        if self._method.name == "fork":
            for name in modules:
                import_module(name)
        else:
            work = dumps_work(target, args, self._method)  # once, so that ranks share no tensor
        if self._method.name == "forkserver":
            preload(context, modules)  # before the tree changes the folder of its socket
        if self.world.user_program is not None:
            self._tree = ProcessTree()
            self._own += self._tree.descriptors
        exit_reader, self._exit_writer = context.Pipe(duplex=False)
        self._own.append(self._exit_writer.fileno())
        for rank in self._local_ranks.ranks:
            if self.interrupts.received is not None:
                break
            self._workers.append(self._start_one(context, rank, work, exit_reader))
        self._running = set(self._workers)
        exit_reader.close()

    def _start_one(self, context: Any, rank: int, work: Work, exit_pipe: Connection) -> Worker:
        from distdemo.launcher.rank_process import Assignment, rank_main

        program = self.world.user_program
        reader, writer = context.Pipe(duplex=False)
        self._own.append(reader.fileno())
        output = output_writer = stdin = mpi = None
        if self.world.capture and not (program and program.terminal == rank):
            output, output_writer = context.Pipe(duplex=False)
            os.set_blocking(output.fileno(), False)
            self._own.append(output.fileno())
        if program is not None and program.stdin == rank:
            with suppress(OSError):  # standard input is closed
                stdin = Connection(os.dup(0), writable=False)
        inherited = self._own
        if self._pmi is not None:
            mpi = self._pmi.connect(rank)
            inherited = [*self._own, *self._pmi.descriptors]
        assignment = Assignment(
            rank,
            self.world,
            self._local_ranks,
            work,
            result_pipe=writer,
            exit_pipe=exit_pipe,
            output=output_writer,
            stdin=stdin,
            mpi=mpi,
            inherited=tuple(inherited) if self._method.name == "fork" else (),
        )
        process = context.Process(target=rank_main, args=(assignment,), name=f"rank-{rank}")
        try:
            process.start()
        except (OSError, EOFError) as error:  # the forkserver exits where it can't fork
            raise UsageError(
                f"Rank {rank} could not be started.",
                "The forkserver has exited." if isinstance(error, EOFError) else f"{error}.",
                "Start fewer ranks, or raise the limits on processes, open files and memory.",
            ) from error
        if self._tree is not None:
            self._tree.add(process.pid)
        for end in (writer, output_writer, stdin, mpi and mpi[1]):
            if end is not None:
                end.close()
        exit_fd = _exit_descriptor(process, self._method)
        self._own.append(exit_fd)
        own_group = program is not None and not program.group
        receiver = Receiver(reader.fileno())
        return Worker(rank, self.started_at, process, reader, receiver, exit_fd, output, own_group)

    # ------------------------------------------------------------------------------------ watching

    def watch(self, callbacks: Callbacks, listener: Listener | None = None) -> None:
        """Wait until every rank of the world has ended or the world must be stopped.

        One loop over every pipe. The wait is limited by the world's deadline and by its stall
        limit, the time without progress; then the late ranks are asked for their stacks.
        """
        self._callbacks = callbacks
        if callbacks.after_start is not None:
            callbacks.after_start()
        if (self._tree is not None or self.world.silent) and self.world.stall is not None:
            self._activity = Activity({worker.process.pid or 0 for worker in self._workers})
        with selectors.DefaultSelector() as selector:
            selector.register(self.interrupts, selectors.EVENT_READ)
            if listener is not None:
                selector.register(listener, selectors.EVENT_READ, listener.on_message)
            for rank, end in self._pmi.sockets.items() if self._pmi is not None else ():
                selector.register(end, selectors.EVENT_READ, partial(self._pmi.on_message, rank))  # type: ignore[union-attr]  # there are some
            for worker in self._workers:
                receive = partial(self._receive, worker)
                selector.register(worker.reader, selectors.EVENT_READ, receive)
                exited = partial(self._on_exit, worker)
                selector.register(worker.exit_fd, selectors.EVENT_READ, exited)
                if worker.output is not None:
                    read = partial(self._read, worker)
                    selector.register(worker.output, selectors.EVENT_READ, read)
            next_poll = time.monotonic() + POLL_S
            while (reason := self._find_stop_reason(listener)) is None:
                for key, _ in selector.select(self._pause()):
                    if key.data is not None and not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_poll:
                    self._poll()
                    next_poll = time.monotonic() + POLL_S
        self.stop_reason = reason
        asks = {StopReason.TIMED_OUT, StopReason.STALLED, StopReason.INTERRUPTED}
        if self.world.user_program is not None:  # its phases say little
            asks.add(StopReason.FAILED)
        if reason in asks:
            for worker in self._workers:  # messages sent before the end count
                self._receive(worker)
            self._collect_stacks()

    def deliver(self, rank: int, value: object) -> None:
        """Pass a value that a rank sent to the callback, unless a callback has ended the world.

        Progress is recorded afterwards: a slow callback is not the ranks' fault.
        """
        if self._callbacks.on_message is not None and not self._ended_early:
            self._ended_early = self._callbacks.on_message(rank, value) is True
        self._progress_at = time.monotonic()

    def _deliver_from(self, worker: Worker) -> OnMessage | None:
        """Return the callback for a rank's values, which follow the output before them."""
        if self._callbacks.on_message is None:
            return None

        def deliver(rank: int, value: object) -> None:
            self._drain(worker)
            self.deliver(rank, value)

        return deliver

    def _drain(self, worker: Worker) -> None:
        """Show the output that has arrived."""
        for _ in range(MAX_READS):  # a daemon of the rank may write forever
            piece = worker.read()
            if not piece:
                return
            self._show(worker.rank, piece)

    def _receive(self, worker: Worker) -> bool:
        """Handle a rank's messages; False at end of file."""
        more = worker.receive(self._deliver_from(worker))
        self._record_progress(worker)
        return more

    def _on_exit(self, worker: Worker) -> bool:
        """Handle the exit of a rank's process."""
        worker.on_exit(self._deliver_from(worker))
        self._record_progress(worker)
        return False

    def _read(self, worker: Worker) -> bool:
        """Read a rank's output; False at end of file."""
        piece = worker.read()
        if piece:
            self._show(worker.rank, piece)
            if self._activity is not None:
                self._progress_at = time.monotonic()
        return piece is None or bool(piece)

    def _show(self, rank: int, piece: bytes) -> None:
        """Pass output to the callback, unless the callback has raised."""
        if self._callbacks.on_output is not None and not self._is_showing:
            self._is_showing = True
            self._callbacks.on_output(rank, piece)
            self._is_showing = False

    def _poll(self) -> None:
        for worker in [*self._running]:
            if worker.process.exitcode is not None:  # a child of the rank may hold its sentinel
                self._on_exit(worker)
        if self._callbacks.on_output is not None:
            for worker in self._workers:
                self._show(worker.rank, b"")
        if self._callbacks.poll is not None:
            outcomes: list[Outcome | None] = [None] * self.world.world_size
            for worker in self._workers:
                outcomes[worker.rank] = worker.outcome
            for rank, outcome in self._peers.outcomes.items():
                outcomes[rank] = outcome
            self._ended_early |= self._callbacks.poll(outcomes)
        if self._callbacks.has_progress is not None and self._callbacks.has_progress():
            self._progress_at = time.monotonic()

    def _record_progress(self, worker: Worker) -> None:
        self._progress_at = time.monotonic()
        if worker.outcome is None:
            return
        self._running.discard(worker)
        if self._failed_at is None and not isinstance(worker.outcome, Returned):
            self._failed_at = self._progress_at

    # ------------------------------------------------------------------------- when to stop

    def _find_stop_reason(self, listener: Listener | None) -> StopReason | None:
        """Return the reason to stop waiting, or None."""
        now = time.monotonic()
        if self.interrupts.received is not None:
            return StopReason.INTERRUPTED
        if not self._running and not self._peers.running:
            return StopReason.DONE
        if self._ended_early:
            return StopReason.ENDED_EARLY
        if listener is not None and listener.stop_reason is not None:
            return listener.stop_reason
        failed_at = self._first_failure_at()
        if failed_at is not None:
            over = now >= min(failed_at + OTHERS_TIMEOUT_S, self._deadline)
            return StopReason.FAILED if over else None
        if now >= self._deadline:
            return StopReason.TIMED_OUT
        stalled = now >= self._stalled_at() and not self._is_active(now)
        return StopReason.STALLED if stalled else None

    def _first_failure_at(self) -> float | None:
        times = [at for at in (self._failed_at, self._peers.failed_at) if at is not None]
        return min(times, default=None)

    def _pause(self) -> float:
        """Return the seconds until the next timeout or poll."""
        now = time.monotonic()
        failed_at = self._first_failure_at()
        ends = [self._deadline, self._stalled_at(), now + POLL_S]
        if failed_at is not None:
            ends.append(failed_at + OTHERS_TIMEOUT_S)
        return max(0.0, min(ends) - now)

    def _stalled_at(self) -> float:
        """Return the time of the stall limit; it counts from the first message of a rank."""
        if self.world.stall is None or self._progress_at is None:
            return self._deadline
        return self._progress_at + self.world.stall

    def _is_active(self, now: float) -> bool:
        """Return True, and restart the stall limit, if silent ranks are using the processor."""
        if self._activity is None or not self._activity.is_active():
            return False
        self._progress_at = now
        return True

    # ------------------------------------------------------------------------------ stacks

    def _collect_stacks(self) -> None:
        """Request and collect stack traces from the ranks that are still running."""
        asked = {worker.reader: worker for worker in self._running if worker.phase.step >= 0}
        texts = dict.fromkeys((worker.rank for worker in asked.values()), "")
        for worker in asked.values():
            worker.signal(stacks.SIGNAL)
        until = time.monotonic() + STACKS_TIMEOUT_S
        while asked and (left := until - time.monotonic()) > 0:
            answered = all(texts[worker.rank] for worker in asked.values())
            ready = wait(list(asked), min(left, QUIET_TIMEOUT_S) if answered else left)
            if answered and not ready:
                break
            for reader in ready:
                worker = asked[reader]  # type: ignore[index]  # only connections are waited for
                texts[worker.rank] += worker.receiver.receive_text()
                if worker.receiver.closed:
                    del asked[reader]  # type: ignore[arg-type]  # as above
        for worker in self._running:
            worker.where = stacks.locate(texts.get(worker.rank, ""))

    # ------------------------------------------------------------------------------------- the end

    @property
    def succeeded(self) -> bool:
        """True if every rank of this process has returned."""
        return all(isinstance(worker.outcome, Returned) for worker in self._workers)

    def end(self) -> None:
        """Release all ranks; signal, then kill, those that don't exit; close everything."""
        if self._exit_writer is not None:
            self._exit_writer.close()
        quiet = self.succeeded and self.interrupts.received is None
        if not (quiet and wait_for_exit(self._workers, self._local_ranks.exit_timeout_s)):
            self._stop()
        if self._tree is not None:
            self._tree.end()
        for worker in self._workers:
            worker.process.join()
            self._drain(worker)
            worker.close()

    def _stop(self) -> None:
        steps = [(signal.SIGTERM, TERM_TIMEOUT_S), (signal.SIGKILL, TERM_TIMEOUT_S)]
        if self._tree is not None and self.interrupts.received == signal.SIGINT:
            # Ctrl-C doesn't reach their sessions, and a program may have work to save.
            steps = [
                (signal.SIGINT, 1.5 * TERM_TIMEOUT_S),
                (signal.SIGTERM, TERM_TIMEOUT_S / 2),
                steps[1],
            ]
        for number, timeout_s in steps:
            for worker in self._workers:
                if worker.process.exitcode is None:
                    worker.signal(number)
            if wait_for_exit(self._workers, timeout_s):
                return

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each rank of the world, in order.

        Ranks of this process without one timed out or were stopped.
        """
        out_of_time = self.stop_reason in (StopReason.TIMED_OUT, StopReason.STALLED)
        late = self.interrupts.received is None and out_of_time
        failed = self.stop_reason is StopReason.FAILED
        outcomes = [
            worker.final(late=late or (worker.where is not None and not failed))
            for worker in self._workers
        ]
        outcomes += self._peers.outcomes.values()
        return sorted(outcomes, key=lambda outcome: outcome.rank)


def _exit_descriptor(process: BaseProcess, method: StartMethod) -> int:
    """Return a descriptor that is readable once the process has exited.

    multiprocessing's sentinel also works for children of the forkserver and before Linux 5.3, but a
    child of the rank may keep it open.
    """
    if method.name != "forkserver":
        descriptor = system.exit_descriptor(process.pid or 0)
        if descriptor is not None:
            return descriptor
    return process.sentinel


def wait_for_exit(workers: Iterable[Worker], timeout_s: float) -> bool:
    """Return True if all processes exit within this time."""
    until = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.process.exitcode is None:
                selector.register(worker.exit_fd, selectors.EVENT_READ, worker.process)
        while (waiting := selector.get_map()) and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                key.data.join()
                selector.unregister(key.fileobj)
        return not waiting
