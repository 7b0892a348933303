"""Bringing all ranks to a common start.

Without it a rank that is late makes the others' times longer, and nobody sees whose fault that is.
On one machine every rank counts its arrivals in shared memory and looks at the others' until
all have come; that leaves the group alone and costs microseconds. How a rank waits decides whether
the backend is disturbed, as gloo's own threads need the cores too (all_reduce of 8 B, 128 B and
64 KiB between two ranks on two cores, Linux 6.18, 32 turns each): looking all the time holds them
up for a slice of the scheduler's, 3.7 ms instead of 0.1; offering the core at once between two
looks (sched_yield) makes the scheduler pass over the rank later, and 16 of 96 turns stall so, where
3 of a loop without any common start do; naps let the core fall asleep, which takes 2 to 4 times as
long. So a rank looks without a pause for 5 µs, within which the others usually come, and offers its
core then: 5 of 96, and the medians are those of the plain loop (1.02, 0.98 and 0.88 times). Looking
for 20 µs makes 8 B 9 % slower. It sleeps only if it has to wait very long.

Across machines it is the group's own barrier.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol

from distdemo.bench.page import shared_page
from distdemo.bench.yardsticks import BARRIER, PAGE

if TYPE_CHECKING:
    from distdemo.bench.page import Page
    from distdemo.launcher.rank import Rank

LINE = 8  # words of a cache line: two ranks never write into the same one
KEEN = 5e-6  # seconds of looking without a pause
EAGER = 20_000  # looks after that before a rank begins to sleep between two
NAP = 50e-6  # seconds
SILENT = 2.0  # seconds between two words to the launcher


class Aligner(Protocol):
    """Brings ranks to a common start."""

    way: str
    words: memoryview | None
    """That all ranks of the machine see, for whoever else needs some: ``LINE`` for each rank, zeros
    at first. None: they share no memory."""

    def meet(self) -> None:
        """Collective: return when all ranks have come, as nearly at the same moment as can be."""


class PageAligner:
    """Through memory that the ranks share."""

    way = PAGE

    def __init__(self, page: Page, rank: int, world_size: int) -> None:
        self._words = page.words
        self.words: memoryview | None = page.words[world_size * LINE :]
        self._mine = rank * LINE
        self._others = tuple(other * LINE for other in range(world_size) if other != rank)
        self._turn = 0

    def meet(self) -> None:
        """Collective: count this arrival, and wait for all others'."""
        words = self._words
        self._turn += 1
        turn = words[self._mine] = self._turn
        for other in self._others:
            if words[other] < turn:
                self._wait(other, turn)

    def _wait(self, other: int, turn: int) -> None:
        words, clock = self._words, time.perf_counter
        until = clock() + KEEN
        while words[other] < turn and clock() < until:
            pass
        looks = 0
        while words[other] < turn:
            looks += 1
            if looks < EAGER:
                os.sched_yield()
            else:
                time.sleep(NAP)


class BarrierAligner:
    """Through the default group's barrier."""

    way = BARRIER
    words: memoryview | None = None

    def __init__(self) -> None:
        import torch.distributed as dist

        self._barrier = dist.barrier

    def meet(self) -> None:
        """Collective: the barrier."""
        self._barrier()


def aligner(rank: Rank) -> Aligner:
    """Collective: the best way here."""
    page = shared_page(rank, "align", 2 * rank.world_size * LINE * 8)
    if page is None:
        return Speaking(rank, BarrierAligner())
    return Speaking(rank, PageAligner(page, rank.rank, rank.world_size))


class Speaking:
    """Another aligner, with a word to the launcher now and then: the rank still moves.

    Args:
        rank: this rank.
        inner: brings the ranks to a common start.
    """

    def __init__(self, rank: Rank, inner: Aligner) -> None:
        self.way = inner.way
        self.words = inner.words
        self._rank = rank
        self._inner = inner.meet
        self._due = time.perf_counter() + SILENT

    def meet(self) -> None:
        """Collective: say so if that is due, and meet."""
        if time.perf_counter() > self._due:
            self._rank.tell(None)
            self._due = time.perf_counter() + SILENT
        self._inner()
