"""Several things that all ranks do together, timed in turn: A B C, B C A, C A B, ...

So all of them meet the same machine, whatever else it does meanwhile, and none is always the one
after the slowest. How often is not fixed: rank 0 looks at the clock now and then, and tells all.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo.bench.loop import undisturbed

if TYPE_CHECKING:
    from distdemo.bench.align import Aligner
    from distdemo.launcher.rank import Rank

Call = Callable[[], object]
FEWEST = 5  # turns, also where the budget does not reach
LONGEST = 5.0  # times the budget, beyond which even the fewest end
MOST = 10_000  # turns


@dataclass(frozen=True, slots=True)
class Race:
    """What times a number of calls.

    Attributes:
        rank: this rank of the world.
        start: brings the ranks to a common start.
        budget: seconds.
    """

    rank: Rank
    start: Aligner
    budget: float

    def run(self, place: str, calls: Sequence[Call]) -> list[array[float]]:
        """Collective: a turn to warm up, then all of them in turn until time is up.

        Args:
            place: a name that no other race of the world has.
            calls: the same ones in the same order on every rank.

        Returns:
            Seconds that this rank needed, an entry a turn, of each.
        """
        took = [array("d") for _ in calls]
        for call in calls:
            self._timed(call)
        began, turn = perf_counter(), 0
        while count := self._agreed(f"{place}/{turn}", turn, perf_counter() - began):
            with undisturbed():
                for each in range(turn, turn + count):
                    for number in rotated(len(calls), each):
                        took[number].append(self._timed(calls[number]))
            turn += count
        return took

    def _timed(self, call: Call) -> float:
        """Collective: one run from a common start."""
        self.rank.synchronize()
        self.start.meet()
        began = perf_counter()
        call()
        self.rank.synchronize()
        return perf_counter() - began

    def _agreed(self, place: str, turns: int, seconds: float) -> int:
        """Collective: how many turns follow; 0: it is over. Rank 0 decides."""
        store = self.rank.store("race")
        if self.rank.rank == 0:
            store.set(place, str(more(turns, seconds, self.budget)))
        return int(store.get(place))


def more(turns: int, seconds: float, budget: float) -> int:
    """How many turns to run before the next look at the clock; 0: none.

    Args:
        turns: run by now.
        seconds: that they took.
        budget: seconds.
    """
    if not turns:
        return 1
    pace = max(seconds / turns, 1e-9)
    if turns < FEWEST:
        return max(0, min(FEWEST - turns, int((LONGEST * budget - seconds) / pace)))
    return max(0, min(turns, MOST - turns, int((budget - seconds) / pace)))


def rotated(count: int, turn: int) -> list[int]:
    """All numbers below the count, in order, from another one on in each turn."""
    return [(turn + place) % count for place in range(count)]
