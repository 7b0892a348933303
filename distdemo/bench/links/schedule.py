"""Whose turn it is: one pair at a time, round after round. Pure; no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

MANY_RANKS = 16  # beyond, a phase for each turn would keep the launcher busy, and so the cores
MOST_SMALL, MOST_LARGE = 200, 64  # timed messages in a visit: more make a median no better
FEWEST_SMALL = 5
BATCH = 20  # small messages between two looks at whether the visit's time is over
WINDOW = 4  # large messages that are sent before the receiver says that it has them all


@dataclass(frozen=True, slots=True)
class Turn:
    """Two ranks measure the links between them, one way and then the other.

    Attributes:
        number: counted over all rounds.
        lap: the round, from 0.
        first: one of the ranks.
        second: the other.
    """

    number: int
    lap: int
    first: int
    second: int

    @property
    def ways(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """From and to, in order."""
        return (self.first, self.second), (self.second, self.first)


@dataclass(frozen=True, slots=True)
class Counts:
    """What one visit of a link sends.

    Attributes:
        small: messages there and back, each timed.
        windows: of large messages, each timed.
        window: messages in one.
        seconds: after which no more of a kind is sent, whatever the counts say.
    """

    small: int
    windows: int
    window: int
    seconds: float = math.inf

    def batches(self) -> Iterator[int]:
        """The small messages in groups that are sent without a look at the time."""
        return (min(BATCH, self.small - sent) for sent in range(0, self.small, BATCH))


def turns(world_size: int, rounds: int) -> Iterator[Turn]:
    """All of them, in order.

    Rounds go over all pairs, rather than each pair having its rounds at once: so a disturbance that
    passes meets a link once, and each link is measured at several times.
    """
    laps = ((lap, *pair) for lap in range(rounds) for pair in combinations(range(world_size), 2))
    return (Turn(number, *turn) for number, turn in enumerate(laps))


def counts(round_trip: float, large: float, seconds: float) -> Counts:
    """How much fits into a visit.

    Args:
        round_trip: seconds of a small message there and back, as far as is known.
        large: seconds of a large one.
        seconds: for the visit, half of them for each kind.
    """
    small = int(seconds / 2 / max(round_trip, 1e-9))
    many = min(MOST_LARGE, max(1, int(seconds / 2 / max(large, 1e-9))))
    fitting = _counts(min(MOST_SMALL, max(FEWEST_SMALL, small)), many)
    return replace(fitting, seconds=seconds / 2)


def fixed_counts(iters: int) -> Counts:
    """So many messages of each kind, or a few more large ones, to fill the last window."""
    return _counts(iters, iters)


def _counts(small: int, many: int) -> Counts:
    window = min(WINDOW, many)
    return Counts(small, -(-many // window), window)


def visit_seconds(budget: float, world_size: int, rounds: int) -> float:
    """A visit's share of the time for all."""
    return budget / max(1, rounds * world_size * (world_size - 1))
