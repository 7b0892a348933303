"""The launcher's wait: hear what ranks say until all have ended, or it is no use to go on.

One loop over every pipe. Time runs out in two ways: at the world's deadline, and after its stall,
the time without progress; then the ranks that are late are asked where they are.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

from distdemo.launcher import stacks
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.process_tree import Work
from distdemo.launcher.records import Returned, WorldSpec

if TYPE_CHECKING:
    from distdemo.launcher.workers import Worker

LOOK = 0.2  # seconds between looks at processes whose pipe is silent
SETTLE = 0.4  # seconds that others get to end by themselves after one failed
ANSWER = 0.3  # seconds that late ranks get to say where they are
SILENCE = 0.05  # seconds without a word after which those that have answered have said all

Hear = Callable[[int, Any], bool | None]
"""Called with a rank's number and a value that it told; True ends the world."""


class End(Enum):
    """Why the wait is over."""

    DONE = auto()  # every rank has ended
    FAILED = auto()  # a rank failed, and the others have had their time to settle
    TIMED_OUT = auto()
    STALLED = auto()  # no progress for longer than the world allows
    ENDED_EARLY = auto()  # its listener has heard enough
    INTERRUPTED = auto()

    @property
    def late(self) -> bool:
        """Whether ranks that have not ended by then are at fault for it."""
        return self in (End.TIMED_OUT, End.STALLED)


class Listener(Protocol):
    """What else is heard while ranks run: another process that has a part in the world."""

    @property
    def over(self) -> End | None:
        """Why the world is of no more use; None while it is."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is something to hear."""

    def hear(self) -> bool:
        """Take what came, without waiting; False when there will be no more."""


class Watch:
    """The wait for the ranks of one world."""

    def __init__(  # noqa: PLR0913 - one loop hears all of them
        self,
        world: WorldSpec,
        workers: Sequence[Worker],
        interrupts: Interrupts,
        hear: Hear | None,
        deadline: float,
        *,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._world = world
        self._workers = workers
        self._running = {worker for worker in workers if worker.outcome is None}
        self._interrupts = interrupts
        self._hear = hear
        self._deadline = deadline
        self._listeners = listeners
        self._failed_at: float | None = None
        self._moved_at: float | None = None  # None until a rank has said its first word
        self._enough = False
        self._work: Work | None = None
        if world.user_program is not None and world.stall is not None:
            # Each of its ranks leads the session of its process's number.
            self._work = Work({worker.process.pid or 0 for worker in workers})
        for worker in workers:
            worker.told = None if hear is None else self._told

    def until_the_end(self) -> End:
        """Hear the ranks until the wait is over; those still running then know where they stand."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._interrupts, selectors.EVENT_READ)
            for listener in self._listeners:
                selector.register(listener, selectors.EVENT_READ, listener.hear)
            for worker in self._workers:
                selector.register(worker.reader, selectors.EVENT_READ, partial(self._take, worker))
                if worker.output is not None:
                    read = partial(self._read, worker)
                    selector.register(worker.output, selectors.EVENT_READ, read)
            next_look = time.monotonic() + LOOK
            while (end := self._end()) is None:
                for key, _ in selector.select(self._pause()):
                    if key.data is not None and not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_look:
                    self._look()
                    next_look = time.monotonic() + LOOK
        if end.late or end is End.INTERRUPTED:
            for worker in self._workers:  # what was said by then counts
                self._take(worker)
            self._ask_where()
        return end

    # ---------------------------------------------------------------------------- what comes

    def _take(self, worker: Worker) -> bool:
        """Take what a rank sent; False when there will be no more."""
        more = worker.hear()
        self._note(worker)
        return more

    def _read(self, worker: Worker) -> bool:
        """Take what a rank wrote; False when there will be no more."""
        piece = worker.read()
        if piece and self._work is not None:
            self._moved_at = time.monotonic()
        return piece is None or bool(piece)

    def _told(self, rank: int, value: object) -> None:
        if self._hear is not None and not self._enough:
            self._enough = self._hear(rank, value) is True

    def _look(self) -> None:
        for worker in list(self._running):
            if worker.look():
                self._note(worker)
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
        if self._world.stall is None or self._moved_at is None:
            return self._deadline
        return self._moved_at + self._world.stall

    def _at_work(self, now: float) -> bool:
        """Whether silent ranks are at work all the same; then their time begins anew."""
        if self._work is None or not self._work.goes_on():
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
