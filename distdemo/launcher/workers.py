"""The ranks that this process starts and looks after, from the first process to the last.

All ranks of a world on one machine, or one node's part of a world that spans several.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.messages import (
    Done,
    Message,
    Reached,
    Receiver,
    Told,
    dumps_work,
    main_can_be_imported,
    main_file,
)
from distdemo.launcher.pmi import PmiServer
from distdemo.launcher.process_tree import ProcessTree
from distdemo.launcher.records import (
    NOT_STARTED,
    Died,
    Outcome,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Where,
    WorldSpec,
)
from distdemo.launcher.rendezvous import LocalRanks
from distdemo.launcher.start_method import StartMethod, preload
from distdemo.launcher.watch import LOOK, End, Hear, Listener, Watch

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

    from distdemo.launcher.rank import Work

GRACE = 0.7  # seconds between asking a rank to stop and killing it
REAP = 0.5  # seconds that a process gets to end once its pipe is closed
LAST_PIECES = 32  # of its output that are read when it has ended: more than a pipe holds
KEPT_OUTPUT = 1 << 16  # bytes of a rank's captured output that are kept: the last ones

Wrote = Callable[[int, bytes], object]
"""Called with a rank's number and a piece of what it writes."""


@dataclass(slots=True, eq=False)
class Worker:
    """The launcher's view of one rank: its process, what it has said, and how it ended.

    Attributes:
        rank: its number.
        began: when the world began, on the monotonic clock.
        process: its process.
        reader: the launcher's end of its way back.
        receiver: takes messages from ``reader``.
        output: the launcher's end of its stdout and stderr, if they are captured.
        own_group: it runs a program that may leave by ``os._exit(0)`` when it is done.
        said: the last bytes that it wrote.
        phase: the last one that it reached.
        outcome: how it ended, None while it has not.
        where: where it stood when it was asked.
        told: called with its number and each value that it tells; None: nobody listens.
        wrote: called with its number and each piece of what it writes; None: nobody listens.
    """

    rank: int
    began: float
    process: BaseProcess
    reader: Connection
    receiver: Receiver
    output: Connection | None = None
    own_group: bool = False
    said: bytearray = field(default_factory=bytearray)
    phase: Phase = NOT_STARTED
    outcome: Outcome | None = None
    where: Where | None = None
    told: Hear | None = None
    wrote: Wrote | None = None

    def hear(self) -> bool:
        """Take the messages that came; False when there will be no more."""
        for message in self.receiver.receive():
            self._note(message)
        if self.receiver.closed and self.outcome is None:
            self.process.join(REAP)
            self._note_death()
        return not self.receiver.closed

    def read(self) -> bytes | None:
        """The next piece of what it wrote, None if there is none yet; empty: no more will come."""
        if self.output is None:
            return b""
        try:
            data = os.read(self.output.fileno(), KEPT_OUTPUT)
        except BlockingIOError:
            return None
        self.said += data
        del self.said[:-KEPT_OUTPUT]
        if self.wrote is not None and data:
            self.wrote(self.rank, data)
        return data

    def look(self) -> bool:
        """See whether it is gone although its pipe is not closed, as a child may hold it: is it?

        False for a rank whose end was known before.
        """
        if self.outcome is not None or self.process.exitcode is None:
            return False
        self.hear()
        self._note_death()
        return True

    def signal(self, number: int) -> None:
        """Send the process a signal, if it still exists."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError):  # it ended in this moment
                os.kill(self.process.pid, number)

    def final(self, *, late: bool) -> Outcome:
        """How it ended, with what it wrote.

        Args:
            late: whether a rank without an outcome ran out of time; else it was stopped.
        """
        outcome, now = self.outcome, time.monotonic() - self.began
        if outcome is None and (late or self.where is not None):
            outcome = TimedOut(rank=self.rank, phase=self.phase, at=now, where=self.where)
        elif outcome is None:
            outcome = Stopped(rank=self.rank, phase=self.phase, at=now)
        return replace(outcome, output=self.said.decode(errors="replace"))

    def close(self) -> None:
        """Wait for the process, which has ended, and close every descriptor of it."""
        self.process.join()
        for _ in range(LAST_PIECES):  # a daemon of the rank's may still write, and never end
            if not self.read():
                break
        self.process.close()
        self.reader.close()
        if self.output is not None:
            self.output.close()

    def _note(self, message: Message) -> None:
        if self.outcome is not None:  # it has failed here, though it does not know
            return
        if isinstance(message, Reached):
            self.phase = Phase(message.step, message.name, message.at - self.began)
        elif isinstance(message, Told):
            if self.told is not None:
                value = self._unpickled(message.payload, "told", time.monotonic())
                if isinstance(value, Raised):
                    self.outcome = value
                else:
                    self.told(self.rank, value)
        elif isinstance(message, Done):
            value = self._unpickled(message.payload, "returned", message.at)
            at = message.at - self.began
            done = Returned(rank=self.rank, phase=self.phase, at=at, value=value)
            self.outcome = value if isinstance(value, Raised) else done
        else:
            failed = message.outcome
            self.outcome = replace(failed, phase=self.phase, at=failed.at - self.began)

    def _unpickled(self, payload: bytes, verb: str, at: float) -> Any:  # noqa: ANN401 - the user's value
        """A value that came; one that can't be read is the rank's error."""
        try:
            return pickle.loads(payload)  # noqa: S301 - a private pipe of our own child
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - unpickling a user's object may raise anything
            return Raised(
                rank=self.rank,
                phase=self.phase,
                at=at - self.began,
                type=type(error).__qualname__,
                message=f"the value that it {verb} can't be read back here: {error}",
                traceback="",
            )

    def _note_death(self) -> None:
        """If the process ended without a word, note how."""
        code = self.process.exitcode
        if self.outcome is not None or code is None:
            return
        at = time.monotonic() - self.began
        if code == 0 and self.own_group:
            self.outcome = Returned(rank=self.rank, phase=self.phase, at=at, left=True)
            return
        self.outcome = Died(
            rank=self.rank,
            phase=self.phase,
            at=at,
            signal=-code if code < 0 else None,
            exit_code=code if code >= 0 else None,
        )


class Workers:
    """The ranks of one node.

    Attributes:
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
        self._world = world
        self._here = here
        self._method = method
        self._interrupts = interrupts
        self._pmi = pmi
        self._context: BaseContext = mp.get_context(method.name)
        self._workers: list[Worker] = []
        self._tree = None if world.user_program is None else ProcessTree()
        self._gate_reader, self._gate_writer = self._context.Pipe(duplex=False)
        # What a forked rank finds open and must close: the launcher's ends of all pipes so far.
        self._own = [*private, *interrupts.descriptors, self._gate_writer.fileno()]
        self._own += () if self._tree is None else self._tree.descriptors

    def start(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Start every rank, unless a signal comes in between."""
        provider = self._world.provider
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

        program = self._world.user_program
        reader, writer = self._context.Pipe(duplex=False)
        output = pen = stdin = None
        if self._world.capture and not (program and program.terminal == rank):
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
            self._world,
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
        except OSError as error:
            raise UsageError(
                f"Rank {rank} could not be started.",
                str(error),
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

    def watch(
        self, hear: Hear | None, listeners: Sequence[Listener] = (), wrote: Wrote | None = None
    ) -> None:
        """Return when every rank has reported, or when it is no use to wait any longer.

        Args:
            hear: called for each value that a rank tells.
            listeners: what else has to be heard meanwhile.
            wrote: called for each piece that a captured rank writes, until it raises.
        """
        reading = wrote is not None

        def read(rank: int, piece: bytes) -> None:
            nonlocal reading
            if reading and wrote is not None:
                reading = False  # if it raises, its own reader is gone
                wrote(rank, piece)
                reading = True

        for worker in self._workers:
            worker.wrote = None if wrote is None else read
        ports = () if self._pmi is None else tuple(p for p in self._pmi.ports.values() if p.open)
        watch = Watch(
            self._world,
            self._workers,
            self._interrupts,
            hear,
            self.began + self._world.deadline,
            listeners=(*listeners, *ports),
        )
        self.ended = watch.until_the_end()

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

    def outcomes(self) -> tuple[Outcome, ...]:
        """How each rank ended; those that had not by then ran out of time or were stopped."""
        late = self._interrupts.received is None and self.ended.late
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
