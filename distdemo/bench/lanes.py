"""A pipe through shared memory between ranks: what MPI's and NCCL's transport on one machine do.

The sender copies blocks into slots, the receiver copies them out; two counters say how far each
is. Whoever has to wait looks again and again, and offers its core between two looks::

    sender    ──copy──▶ │ slot 0 │ slot 1 │ slot 2 │ slot 3 │ ──copy──▶    receiver
                          sent = 7                  taken = 5

The copied bytes are never looked at, so it does not matter in which order a processor shows them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

from distdemo.bench.pace import BURST, MESSAGE, PATIENCE, LostError, drain, fastest, flow
from distdemo.bench.page import Page, shared_page
from distdemo.bench.yardsticks import SHARED_MEMORY

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LINE = 8  # words of a cache line: no two ranks write into the same one
SENT, TAKEN, ASKED, ANSWERED, ENDED = (number * LINE for number in range(5))
HEAD = 5 * LINE * 8  # bytes before the first slot of all
SLOTS = 4
BLOCK = 128 << 10  # bytes of a slot
LOOKS = 1000  # between two looks at the clock


class Lane:
    """From one rank to another, who alone write and read it.

    Args:
        page: shared by both.
        number: of the lane in it.
        lanes: that are in it.
    """

    def __init__(self, page: Page, number: int, lanes: int) -> None:
        self.words = page.words[number * HEAD // 8 : (number + 1) * HEAD // 8]
        first = lanes * HEAD + number * SLOTS * BLOCK
        self._slots = [
            page.buffer[first + n * BLOCK : first + (n + 1) * BLOCK] for n in range(SLOTS)
        ]

    def give(self, blocks: Iterator[memoryview]) -> bool:
        """Copy the next of these blocks into the lane; False if there is no room."""
        sent = self.words[SENT]
        if sent - self.words[TAKEN] >= SLOTS:
            return False
        self._slots[sent % SLOTS][:] = next(blocks)
        self.words[SENT] = sent + 1
        return True

    def take(self, blocks: Iterator[memoryview]) -> bool:
        """Copy out of the lane into the next of these blocks; False if there is nothing."""
        taken = self.words[TAKEN]
        if self.words[SENT] <= taken:
            return False
        next(blocks)[:] = self._slots[taken % SLOTS]
        self.words[TAKEN] = taken + 1
        return True

    @property
    def empty(self) -> bool:
        """Whether all that was sent is taken."""
        return bool(self.words[SENT] == self.words[TAKEN])

    def close(self) -> None:
        """Give up the views."""
        for view in (self.words, *self._slots):
            view.release()


class Lanes:
    """This rank's lanes: each rank has one to its right neighbour.

    Args:
        rank: this rank of the world.
        page: room for all lanes.
        size: bytes of a message; a multiple of ``BLOCK``.
    """

    kind: ClassVar[str] = SHARED_MEMORY

    def __init__(self, rank: Rank, page: Page, size: int) -> None:
        me, count = rank.rank, rank.world_size
        self._page = page
        self.size = size
        self._ends = 0  # of what came in so far
        self._out = Lane(page, me, count)
        self._in = Lane(page, (me - 1) % count, count)
        self._given, self._taken = _blocks(size), _blocks(size)

    def send(self, dst: int, seconds: float) -> tuple[float, float]:
        """Stream to the right neighbour: bytes a second, and seconds of 8 bytes.

        Raises:
            OSError: it fell silent.
        """
        latency = fastest(self._ask, seconds / 3) / 2
        took = fastest(self._burst, 2 * seconds / 3)
        self._out.words[ENDED] += 1
        return BURST * self.size / took, latency

    def receive(self, src: int) -> None:
        """Take what the left neighbour streams.

        Raises:
            OSError: it fell silent.
        """
        lane, words = self._in, self._in.words
        answered = words[ANSWERED]
        self._ends += 1

        def served() -> bool:
            nonlocal answered
            if words[ASKED] > answered:
                answered = words[ANSWERED] = answered + 1
            while lane.take(self._taken):
                pass
            return bool(words[ENDED] >= self._ends)

        wait_for(served)

    def ring(self, seconds: float, *, crowded: bool) -> float:
        """Collective: give to the right while taking from the left: bytes a second taken.

        Raises:
            OSError: a neighbour fell silent.
        """
        self._ends += 1
        received = flow(self._step, seconds, crowded=crowded)
        self._out.words[ENDED] += 1
        drain(self._last_step, lambda: self._in.words[ENDED] >= self._ends and self._in.empty)
        return received

    def close(self) -> None:
        """Give the memory back."""
        self._out.close()
        self._in.close()
        self._page.close()

    def _ask(self) -> None:
        words = self._out.words
        words[ASKED] += 1
        asked = words[ASKED]
        wait_for(lambda: words[ANSWERED] >= asked)

    def _burst(self) -> None:
        for _ in range(BURST * self.size // BLOCK):
            wait_for(lambda: self._out.give(self._given))
        wait_for(lambda: self._out.empty)

    def _step(self) -> int:
        gave = self._out.give(self._given)
        return self._last_step(yields=not gave)

    def _last_step(self, *, yields: bool = True) -> int:
        if self._in.take(self._taken):
            return BLOCK
        if yields:
            os.sched_yield()
        return 0


def _blocks(size: int) -> cycle[memoryview]:
    """The pieces of a message, over and over."""
    message = memoryview(bytearray(size))
    return cycle([message[at : at + BLOCK] for at in range(0, size, BLOCK)])


def open_lanes(rank: Rank, size: int = MESSAGE) -> Lanes | None:
    """Collective: room for every rank's lane; None on every rank where they share no memory.

    Args:
        rank: this rank of the world.
        size: bytes of a message; a multiple of ``BLOCK``.
    """
    page = shared_page(rank, "limits/lanes", rank.world_size * (HEAD + SLOTS * BLOCK))
    return None if page is None else Lanes(rank, page, size)


def wait_for(condition: Callable[[], bool]) -> None:
    """Look until it holds.

    Raises:
        LostError: it did not in time.
    """
    until = perf_counter() + PATIENCE
    while True:
        for _ in range(LOOKS):
            if condition():
                return
            os.sched_yield()
        if perf_counter() > until:
            raise LostError("the other rank fell silent")
