"""Gauges: what the machine itself does at this moment, seen in two milliseconds by all ranks.

A machine is not always the same: a hypervisor moves its processors, a clock changes, a neighbour
comes. Whoever compares two runs has to know. So every launch that times looks at three fixed pieces
of work in which torch.distributed has no part, at its beginning, twice in between and at its end:

- core to core: a word to the neighbour and one back, through the page of the common start;
- arithmetic: plain Python, as fast as the clock;
- copy: 1 MiB from one buffer to another, more than most cores keep to themselves.

They are done on the host also where the ranks' tensors live on a GPU. Of a look's batches the
median counts: not one in which somebody else had the core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from distdemo.bench.align import EAGER, LINE, NAP
from distdemo.bench.environment import cores
from distdemo.bench.samples import Look, Looks
from distdemo.bench.summary import median

if TYPE_CHECKING:
    from distdemo.bench.align import Aligner
    from distdemo.bench.plan import Visit
    from distdemo.launcher.rank import Rank

MOMENTS = 3  # of a launch, before a visit; one more is after the last
BATCHES = 7  # of each gauge in a look; a first one warms up
TRIPS = 25  # round trips of a batch
STEPS = 1500  # additions of a batch
SIZE = 1 << 20  # bytes of a copy, ...
ROOM = 256 << 20  # ... unless the buffers of all ranks would have more
KEEN = 100  # looks at the neighbour's word before a rank offers its core between two


class Watchman:
    """Looks at the machine at the moments that are due, and tells the launcher.

    Args:
        rank: this rank of the world.
        start: brings all ranks to a common start.
        visits: of this world, in order.
    """

    def __init__(self, rank: Rank, start: Aligner, visits: Sequence[Visit]) -> None:
        self._rank = rank
        self._visits = visits
        self._due = moments(visits)
        self._gauges = Gauges(rank, start) if self._due else None
        self._seen: list[Look] = []

    def before(self, place: int) -> None:
        """Collective: look, if that is due before this visit."""
        if self._gauges is not None and place in self._due:
            self._seen.append(self._gauges.look())

    def after(self, place: int) -> None:
        """Collective: look once more after the last visit of a launch, and tell."""
        launch, following = self._visits[place].launch, self._visits[place + 1 : place + 2]
        if self._gauges is None or not launch or [each.launch for each in following] == [launch]:
            return
        self._rank.tell(Looks(launch, (*self._seen, self._gauges.look())))
        self._seen.clear()


def moments(visits: Sequence[Visit]) -> frozenset[int]:
    """Before which of these visits the machine is looked at: some of each launch that times.

    Args:
        visits: of a world; those of a launch follow each other.
    """
    found: set[int] = set()
    for launch in {visit.launch for visit in visits} - {0}:
        mine = [place for place, visit in enumerate(visits) if visit.launch == launch]
        found |= {mine[turn * len(mine) // MOMENTS] for turn in range(MOMENTS)}
    return frozenset(found)


class Gauges:
    """What a rank looks with.

    Args:
        rank: this rank of the world.
        start: brings all ranks to a common start.
    """

    def __init__(self, rank: Rank, start: Aligner) -> None:
        import torch

        self._meet = start.meet
        self._pair = pair(rank, start)
        size = min(SIZE, ROOM // (2 * rank.world_size))
        self._from = torch.ones(size, dtype=torch.uint8)
        self._to = torch.zeros_like(self._from)

    def look(self) -> Look:
        """Collective: how long each piece of work takes now.

        Core to core comes last: by then ranks that slept on one core have found two.
        """
        self._meet()
        sums = self._timed(_add)
        self._meet()
        copy = self._timed(self._copy)
        self._meet()
        trip = None if self._pair is None else self._timed(self._pair.trips) / TRIPS
        return trip, sums, copy

    def _timed(self, work: Callable[[], object]) -> float:
        """The median batch."""
        work()
        took = []
        for _ in range(BATCHES):
            began = perf_counter()
            work()
            took.append(perf_counter() - began)
        return median(took)

    def _copy(self) -> None:
        self._to.copy_(self._from)


class Pair:
    """Two ranks, and the word that each has for the other.

    Args:
        words: of memory that both see; zeros at first.
        mine: the place of this rank's word.
        other: that of the other's.
    """

    def __init__(self, words: memoryview, mine: int, other: int) -> None:
        self._words, self._mine, self._other = words, mine, other
        self._turn = 0

    def trips(self) -> None:
        """Collective, of the two: so many words to and fro. The rank in front begins."""
        words, mine, other, leads = self._words, self._mine, self._other, self._mine < self._other
        for turn in range(self._turn + 1, self._turn + TRIPS + 1):
            if leads:
                words[mine] = turn
            for _ in range(KEEN):
                if words[other] >= turn:
                    break
            else:
                self._wait(turn)
            if not leads:
                words[mine] = turn
        self._turn += TRIPS

    def _wait(self, turn: int) -> None:
        """For longer, as the common start does: the other has lost its core."""
        looks = 0
        while self._words[self._other] < turn:
            looks += 1
            if looks < EAGER:
                os.sched_yield()
            else:
                sleep(NAP)


def pair(rank: Rank, start: Aligner) -> Pair | None:
    """Collective: this rank and its neighbour: 0 and 1, 2 and 3, and so on.

    Returns:
        None for the last of an odd number, where the ranks share no memory, and where one of the
        two knows of fewer cores than ranks: they take turns, and it would be the scheduler that is
        measured.
    """
    other, words = rank.rank ^ 1, start.words
    if words is None:
        return None
    mine = rank.rank * LINE
    words[mine + 1] = rank.world_size <= cores().effective  # next to the word that travels
    start.meet()
    if other >= rank.world_size or not (words[mine + 1] and words[other * LINE + 1]):
        return None
    return Pair(words, mine, other * LINE)


def _add() -> None:
    total = 0
    for each in range(STEPS):
        total += each
