"""The launcher's wait: hear what ranks say until all have ended, or it is no use to go on.

One loop over every pipe. Time runs out in two ways: the world's timeout as a whole, and its
patience, the time without progress; then the ranks that are late are asked where they are.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Protocol

from distdemo.launcher import stacks
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.pulse import Pulse
from distdemo.launcher.records import Returned, WorldSpec
from distdemo.launcher.worker import LOOK, Worker

SETTLE = 0.4  # seconds that others get to end by themselves after one failed
ANSWER = 0.3  # seconds that late ranks get to say where they are

Hear = Callable[[int, Any], bool | None]
"""Called with a rank's number and a value that it told; True ends the world."""


class Listener(Protocol):
    """What else is heard while ranks run: another process that has a part in the world."""

    @property
    def over(self) -> bool:
        """Whether the world is of no more use."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is something to hear."""

    def hear(self) -> bool:
        """Take what came, without waiting; False when there will be no more."""


class End(Enum):
    """Why the wait is over."""

    DONE = auto()  # every rank has ended
    FAILED = auto()  # a rank failed, and the others have had their time to settle
    TIMED_OUT = auto()
    STALLED = auto()  # no progress for longer than the world's patience
    ENDED_EARLY = auto()  # whoever listens has heard enough
    INTERRUPTED = auto()

    @property
    def late(self) -> bool:
        """Whether ranks that have not ended by then are at fault for it."""
        return self in (End.TIMED_OUT, End.STALLED)


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
        self._interrupts = interrupts
        self._hear = hear
        self._deadline = deadline
        self._listeners = listeners
        self._failed_at: float | None = None
        self._moved_at: float | None = None  # None until a rank has said its first word
        self._pulse = _pulse(world, workers)
        self._enough = False
        for worker in workers:
            worker.told = None if hear is None else self._told

    def until_the_end(self) -> End:
        """Hear the ranks until the wait is over; the late ones then know where they stand."""
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            next_look = time.monotonic() + LOOK
            while (end := self._end()) is None:
                for key, _ in selector.select(self._pause()):
                    if key.data is not None and not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_look:
                    self._look()
                    next_look = time.monotonic() + LOOK
        if end.late:
            for worker in self._workers:  # what was said by then counts
                self._take(worker)
            self._ask_where([worker for worker in self._workers if worker.outcome is None])
        return end

    def _register(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._interrupts, selectors.EVENT_READ)
        for listener in self._listeners:
            selector.register(listener, selectors.EVENT_READ, listener.hear)
        for worker in self._workers:
            selector.register(worker.reader, selectors.EVENT_READ, partial(self._take, worker))
            if worker.output is not None:
                selector.register(worker.output, selectors.EVENT_READ, partial(self._read, worker))

    # ---------------------------------------------------------------------------- what comes

    def _take(self, worker: Worker) -> bool:
        """Take what a rank sent; False when there will be no more."""
        more = worker.hear()
        self._note(worker)
        return more

    def _read(self, worker: Worker) -> bool:
        """Take what a rank wrote; False when there will be no more."""
        more = worker.listen()
        if more and self._pulse is not None:
            self._moved_at = time.monotonic()
        return more

    def _told(self, rank: int, value: object) -> None:
        if self._hear is not None and not self._enough:
            self._enough = self._hear(rank, value) is True

    def _look(self) -> None:
        for worker in self._workers:
            if worker.look():
                self._note(worker)
            if worker.wrote is not None:
                worker.wrote(worker.rank, b"")

    def _note(self, worker: Worker) -> None:
        """Note progress, after it was dealt with: a slow listener is not the ranks' fault."""
        self._moved_at = time.monotonic()
        if self._failed_at is None and _failed(worker):
            self._failed_at = self._moved_at

    # ------------------------------------------------------------------------- when to leave

    def _end(self) -> End | None:
        """Why the wait is over; None while it is not."""
        now = time.monotonic()
        if self._interrupts.received is not None:
            return End.INTERRUPTED
        if all(worker.outcome is not None for worker in self._workers):
            return End.DONE
        if self._enough or any(listener.over for listener in self._listeners):
            return End.ENDED_EARLY
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
        """When patience ends; never before the first word, as loading torch takes its time."""
        if self._world.stall is None or self._moved_at is None:
            return self._deadline
        return self._moved_at + self._world.stall

    def _at_work(self, now: float) -> bool:
        """Whether silent ranks are at work all the same; then their patience begins anew."""
        if self._pulse is None or not self._pulse.beats():
            return False
        self._moved_at = now
        return True

    # ----------------------------------------------------------------------- where they stand

    def _ask_where(self, late: list[Worker]) -> None:
        """Have every late rank write its stack, and read what comes."""
        asked = {worker.reader: worker for worker in late if worker.phase.step >= 0}
        for worker in asked.values():
            worker.signal(stacks.SIGNAL)
        texts = dict.fromkeys((worker.rank for worker in late), "")
        until = time.monotonic() + ANSWER
        while asked and (left := until - time.monotonic()) > 0:
            for reader in wait(list(asked), left):
                worker = asked[reader]  # type: ignore[index]  # only connections were waited for
                texts[worker.rank] += worker.receiver.receive_text()
                if worker.receiver.closed:
                    del asked[reader]  # type: ignore[arg-type]  # as above
        for worker in late:
            worker.where = stacks.locate(texts[worker.rank])


def _pulse(world: WorldSpec, workers: Sequence[Worker]) -> Pulse | None:
    """Of a guest's ranks: each leads the session of its process's number."""
    if world.user_program is None or world.stall is None:
        return None
    return Pulse({worker.process.pid or 0 for worker in workers})


def _failed(worker: Worker) -> bool:
    return worker.outcome is not None and not isinstance(worker.outcome, Returned)
