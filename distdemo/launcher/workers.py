"""The ranks that this process starts and looks after, from the first process to the last.

All ranks of a world on one machine, or one node's part of a world that spans several.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from distdemo.errors import UsageError
from distdemo.launcher import stacks
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.messages import Receiver, dumps_work, main_can_be_imported, main_file
from distdemo.launcher.pmi import PmiServer
from distdemo.launcher.process_tree import Activity, ProcessTree
from distdemo.launcher.records import Outcome, Returned, WorldSpec
from distdemo.launcher.rendezvous import LocalRanks
from distdemo.launcher.start_method import StartMethod, preload
from distdemo.launcher.worker import Hear, Look, Worker, Wrote

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from distdemo.launcher.rank import Work

GRACE = 0.7  # seconds between asking a rank to stop and killing it
LOOK = 0.2  # seconds between looks at processes whose pipe is silent
AT_A_LOOK = 64  # of them are asked: each is a system call, and a thousand ranks need the processor
SETTLE = 0.4  # seconds that others get to end by themselves after one failed
ANSWER = 0.3  # seconds that late ranks get to say where they are
SILENCE = 0.05  # seconds without a word after which those that have answered have said all


class End(Enum):
    """Why the wait is over."""

    DONE = auto()  # every rank has ended
    FAILED = auto()  # a rank failed, and the others have had their time to settle
    TIMED_OUT = auto()
    STALLED = auto()  # no progress for longer than the world allows
    ENDED_EARLY = auto()  # its listener has heard enough
    INTERRUPTED = auto()


class Listener(Protocol):
    """What else is heard while ranks run: another process that has a part in the world."""

    @property
    def over(self) -> End | None:
        """Why the world is of no more use; None while it is."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is something to hear."""

    def hear(self) -> bool:
        """Take what came, without waiting; False when there will be no more."""


class Part(Listener, Protocol):
    """This process's part of a world that other processes start too."""

    stalled: bool
    interrupted: bool
    failed: bool

    @property
    def engine(self) -> str:
        """Name of what started the processes."""

    @property
    def descriptors(self) -> Sequence[int]:
        """Descriptors that a forked rank must close."""

    def begin(self, world: WorldSpec) -> LocalRanks:
        """Begin a world; return the ranks that this process starts."""

    def watch(
        self, workers: Workers, interrupts: Interrupts, hear: Hear | None, look: Look | None
    ) -> None:
        """Watch all ranks of the world until they have ended, or must."""

    def stop(self) -> None:
        """Have the ranks of the other processes end."""

    def outcomes(self, workers: Workers) -> list[Outcome]:
        """Return how each rank that this process knows of ended, in order."""

    def hosts(self) -> tuple[str, ...]:
        """Return the host of each rank; empty if all are on this one."""


class Workers:
    """The ranks of one node.

    Attributes:
        world: the whole world that they are ranks of.
        ended: why the wait for them was over.
        began: when the first was started, on the monotonic clock.

    Args:
        world: the whole world that they are ranks of.
        here: which of its ranks these are.
        method: how their processes are started.
        interrupts: signals that end the wait.
        private: further descriptors of this process that a forked rank has to close.
        pmi: what ranks over MPI find each other by.
    """

    def __init__(  # noqa: PLR0913 - all that ranks share, once
        self,
        world: WorldSpec,
        here: LocalRanks,
        method: StartMethod,
        interrupts: Interrupts,
        private: Sequence[int] = (),
        *,
        pmi: PmiServer | None = None,
    ) -> None:
        import torch.multiprocessing as mp

        self.ended = End.DONE
        self.began = time.monotonic()
        self.world = world
        self._here = here
        self._method = method
        self._interrupts = interrupts
        self._pmi = pmi
        self._context: BaseContext = mp.get_context(method.name)
        self._workers: list[Worker] = []
        self._running: set[Worker] = set()
        self._listeners: Sequence[Listener] = ()
        self._deadline = self.began + world.deadline
        self._failed_at: float | None = None
        self._moved_at: float | None = None  # None until a rank has said its first word
        self._enough = False
        self._activity: Activity | None = None
        self._looked = 0  # the place of the worker that is looked at next
        self._tree = None if world.user_program is None else ProcessTree()
        self._gate_reader, self._gate_writer = self._context.Pipe(duplex=False)
        # What a forked rank finds open and must close: the launcher's ends of all pipes so far.
        self._own = [*private, *interrupts.descriptors, self._gate_writer.fileno()]
        self._own += () if self._tree is None else self._tree.descriptors

    def start(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Start every rank, unless a signal comes in between."""
        provider = self.world.provider
        work: Work = (target, args)
        if self._method.name == "fork":
            if provider:
                import_module(provider)  # once, for all ranks
        else:
            work = self._packed(target, args)  # so that ranks share no tensor, as under fork
            if self._method.name == "forkserver":
                preload(self._context, provider)
        for rank in self._here.ranks:
            if self._interrupts.received is not None:
                break
            self._workers.append(self._start_one(rank, work))
            if self._pmi is not None:
                self._pmi.hear()
        self._gate_reader.close()

    def _packed(self, target: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
        why = f"The start method is {self._method.name} ({self._method.reason})"
        file = main_file()
        if file is not None and not file.is_file() and not main_can_be_imported():
            raise UsageError(
                "New processes can't import this program.",
                f"{why}, and each of them would import the main module: {file.name}.",
                "Put the program into a file, or launch with start_method='fork' before it "
                "computes or starts threads.",
            )
        try:
            return dumps_work(target, args)
        except Exception as error:
            raise UsageError(
                "The function or its arguments can't be sent to a new process.",
                f"{why}, which needs to pickle them: {error}",
                "Move the function to the top level of a module (no lambda, no local function), or "
                "launch with start_method='fork' before the program computes or starts threads.",
            ) from error

    def _start_one(self, rank: int, work: Work) -> Worker:
        from distdemo.launcher.rank import Assignment, live

        program = self.world.user_program
        reader, writer = self._context.Pipe(duplex=False)
        output = pen = stdin = None
        if self.world.capture and not (program and program.terminal == rank):
            output, pen = self._context.Pipe(duplex=False)
            os.set_blocking(output.fileno(), False)
        if program is not None and program.stdin == rank:
            with suppress(OSError):  # there is none
                stdin = Connection(os.dup(0), writable=False)
        mpi = None if self._pmi is None else self._pmi.connect(rank)
        self._own += [each.fileno() for each in (reader, output) if each is not None]
        others = () if self._pmi is None else self._pmi.descriptors
        assignment = Assignment(
            rank,
            self.world,
            self._here,
            work,
            way_back=writer,
            gate=self._gate_reader,
            output=pen,
            stdin=stdin,
            mpi=mpi,
            inherited=(*self._own, *others) if self._method.name == "fork" else (),
        )
        process = self._context.Process(target=live, args=(assignment,), name=f"rank-{rank}")  # type: ignore[attr-defined]  # every context has it
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
        for end in (writer, pen, stdin, mpi and mpi[1]):
            if end is not None:
                end.close()
        own_group = program is not None and not program.group
        return Worker(
            rank, self.began, process, reader, Receiver(reader.fileno()), output, own_group
        )

    # ------------------------------------------------------------------------------------ watching

    def watch(
        self,
        hear: Hear | None,
        listeners: Sequence[Listener] = (),
        wrote: Wrote | None = None,
        look: Look | None = None,
    ) -> None:
        """Return when every rank has reported, or when it is no use to wait any longer.

        One loop over every pipe. Time runs out in two ways: at the world's deadline, and after its
        stall, the time without progress; then the ranks that are late are asked where they are.

        Args:
            hear: called for each value that a rank tells.
            listeners: what else has to be heard meanwhile.
            wrote: called for each piece that a captured rank writes, until it raises.
            look: called at every look with how each rank ended.
        """
        ports = () if self._pmi is None else tuple(p for p in self._pmi.ports.values() if p.open)
        self._listeners = (*listeners, *ports)
        self._running = {worker for worker in self._workers if worker.outcome is None}
        if self._tree is not None and self.world.stall is not None:
            # Each of its ranks leads the session of its process's number.
            self._activity = Activity({worker.process.pid or 0 for worker in self._workers})

        def told(rank: int, value: object) -> None:
            if hear is not None and not self._enough:
                self._enough = hear(rank, value) is True

        reading = True

        def read(rank: int, piece: bytes) -> None:
            nonlocal reading
            if reading and wrote is not None:
                reading = False  # if it raises, its own reader is gone
                wrote(rank, piece)
                reading = True

        for worker in self._workers:
            worker.told = None if hear is None else told
            worker.wrote = None if wrote is None else read
        with selectors.DefaultSelector() as selector:
            selector.register(self._interrupts, selectors.EVENT_READ)
            for listener in self._listeners:
                selector.register(listener, selectors.EVENT_READ, listener.hear)
            for worker in self._workers:
                selector.register(worker.reader, selectors.EVENT_READ, partial(self._take, worker))
                if worker.output is not None:
                    more = partial(self._read, worker)
                    selector.register(worker.output, selectors.EVENT_READ, more)
            next_look = time.monotonic() + LOOK
            while (end := self._end()) is None:
                for key, _ in selector.select(self._pause()):
                    if key.data is not None and not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_look:
                    self._look()
                    if look is not None:
                        self._enough |= look([worker.outcome for worker in self._workers])
                    next_look = time.monotonic() + LOOK
        self.ended = end
        if end in (End.TIMED_OUT, End.STALLED, End.INTERRUPTED):
            for worker in self._workers:  # what was said by then counts
                self._take(worker)
            self._ask_where()

    def _take(self, worker: Worker) -> bool:
        """Take what a rank sent; False when there will be no more."""
        more = worker.hear()
        self._note(worker)
        return more

    def _read(self, worker: Worker) -> bool:
        """Take what a rank wrote; False when there will be no more."""
        piece = worker.read()
        if piece and self._activity is not None:
            self._moved_at = time.monotonic()
        return piece is None or bool(piece)

    def _look(self) -> None:
        for worker in self._workers[self._looked : self._looked + AT_A_LOOK]:
            if worker in self._running and worker.look():
                self._note(worker)
        self._looked += AT_A_LOOK
        if self._looked >= len(self._workers):
            self._looked = 0
        for worker in self._workers:
            if worker.wrote is not None:
                worker.wrote(worker.rank, b"")

    def _note(self, worker: Worker) -> None:
        """Note progress, after it was dealt with: a slow listener is not the ranks' fault."""
        self._moved_at = time.monotonic()
        if worker.outcome is None:
            return
        self._running.discard(worker)
        if self._failed_at is None and not isinstance(worker.outcome, Returned):
            self._failed_at = self._moved_at

    # ------------------------------------------------------------------------- when to leave

    def _end(self) -> End | None:
        """Why the wait is over; None while it is not."""
        now = time.monotonic()
        if self._interrupts.received is not None:
            return End.INTERRUPTED
        if not self._running:
            return End.DONE
        if self._enough:
            return End.ENDED_EARLY
        for listener in self._listeners:
            if listener.over is not None:
                return listener.over
        if self._failed_at is not None:
            return End.FAILED if now >= min(self._failed_at + SETTLE, self._deadline) else None
        if now >= self._deadline:
            return End.TIMED_OUT
        return End.STALLED if now >= self._stalled_at() and not self._at_work(now) else None

    def _pause(self) -> float:
        """Seconds until something may have to be done although no rank says anything."""
        now = time.monotonic()
        ends = [self._deadline, self._stalled_at(), now + LOOK]
        if self._failed_at is not None:
            ends.append(self._failed_at + SETTLE)
        return max(0.0, min(ends) - now)

    def _stalled_at(self) -> float:
        """When they have stalled; never before the first word, as loading torch takes its time."""
        if self.world.stall is None or self._moved_at is None:
            return self._deadline
        return self._moved_at + self.world.stall

    def _at_work(self, now: float) -> bool:
        """Whether silent ranks are at work all the same; then their time begins anew."""
        if self._activity is None or not self._activity.goes_on():
            return False
        self._moved_at = now
        return True

    # ----------------------------------------------------------------------- where they stand

    def _ask_where(self) -> None:
        """Have every rank that is still running write its stack, and read what comes."""
        asked = {worker.reader: worker for worker in self._running if worker.phase.step >= 0}
        texts = dict.fromkeys((worker.rank for worker in asked.values()), "")
        for worker in asked.values():
            worker.signal(stacks.SIGNAL)
        until = time.monotonic() + ANSWER
        while asked and (left := until - time.monotonic()) > 0:
            heard = all(texts[worker.rank] for worker in asked.values())
            ready = wait(list(asked), min(left, SILENCE) if heard else left)
            if heard and not ready:
                break
            for reader in ready:
                worker = asked[reader]  # type: ignore[index]  # only connections were waited for
                texts[worker.rank] += worker.receiver.receive_text()
                if worker.receiver.closed:
                    del asked[reader]  # type: ignore[arg-type]  # as above
        for worker in self._running:
            worker.where = stacks.locate(texts.get(worker.rank, ""))

    # ------------------------------------------------------------------------------------- the end

    @property
    def well(self) -> bool:
        """Whether every rank has returned."""
        return all(isinstance(worker.outcome, Returned) for worker in self._workers)

    def end(self) -> None:
        """Let the ranks go, ask those that stay to stop, kill those that don't; forget nothing."""
        self._gate_writer.close()
        quiet = self.well and self._interrupts.received is None
        if not (quiet and gone(self._workers, self._here.farewell)):
            self._stop()
        if self._tree is not None:
            self._tree.end()
        for worker in self._workers:
            worker.close()

    def _stop(self) -> None:
        asks = [(signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)]
        if self._tree is not None and self._interrupts.received == signal.SIGINT:
            # Their session does not hear the terminal's, and a program may have work to save.
            asks = [(signal.SIGINT, 1.5 * GRACE), (signal.SIGTERM, GRACE / 2), asks[1]]
        for number, patience in asks:
            for worker in self._workers:
                if worker.process.exitcode is None:
                    worker.signal(number)
            if gone(self._workers, patience):
                return

    def pid(self, rank: int) -> int:
        """Return the process id of one of these ranks."""
        return self._workers[rank - self._here.ranks.start].process.pid or 0

    def outcomes(self) -> tuple[Outcome, ...]:
        """How each rank ended; those that had not by then ran out of time or were stopped."""
        out_of_time = self.ended in (End.TIMED_OUT, End.STALLED)
        late = self._interrupts.received is None and out_of_time
        return tuple(worker.final(late=late) for worker in self._workers)


def gone(workers: Iterable[Worker], seconds: float) -> bool:
    """Whether all their processes end within this time.

    Only those whose sentinel speaks are asked, and all of them now and then: a process that a rank
    left behind may hold its sentinel open.
    """
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.process.exitcode is None:
                selector.register(worker.process.sentinel, selectors.EVENT_READ, worker.process)
        next_look = 0.0
        while (waiting := selector.get_map()) and (now := time.monotonic()) < until:
            keys = [key for key, _ in selector.select(min(until - now, LOOK))]
            if now >= next_look:
                keys, next_look = list(waiting.values()), now + LOOK
            for key in keys:
                if key.data.exitcode is not None:
                    selector.unregister(key.fileobj)
        return not selector.get_map()
