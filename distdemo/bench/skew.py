"""Which rank comes late, and by how much: from the moments at which ranks came to each start.

A rank comes to a start from the call before. Where an op does not take equally long on all ranks by
its nature (a broadcast lets its root go first), what the call took is left out of account.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from distdemo.bench.old_records import RankSkew
from distdemo.bench.summary import median, quantile

OFTEN = 1.5  # times its fair share of iterations that a rank which is named comes last in
LEAST = 3e-6  # seconds of lateness below which nobody is named: what a look at a page takes
BEYOND = 2.0  # times the others' median lateness


@dataclass(slots=True)
class SkewLog:
    """All iterations of a series.

    Attributes:
        ranks: of the world, that take part.
        lopsided: the op does not take equally long on all ranks.
        late: by rank, seconds after the first rank's arrival, an entry an iteration.
        waited: by rank, seconds from its arrival until the last rank's.
        took: by rank, seconds of the call.
        last: by rank, in how many iterations it came last.
    """

    ranks: Sequence[int]
    lopsided: bool = False
    late: list[array[float]] = field(init=False)
    waited: list[array[float]] = field(init=False)
    took: list[array[float]] = field(init=False)
    last: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.late, self.waited, self.took = (_columns(self.ranks) for _ in range(3))
        self.last = [0] * len(self.ranks)

    def add(self, arrived: Sequence[Sequence[float]], took: Sequence[Sequence[float]]) -> None:
        """Iterations of one visit, a sequence for each rank of the world; their clocks are one.

        The first of a visit is left out: ranks come to it from making their buffers.
        """
        for turn in range(1, len(arrived[0])):
            moments = [self._moment(arrived[rank], took[rank], turn) for rank in self.ranks]
            first, last = min(moments), max(moments)
            self.last[moments.index(last)] += 1
            for place, (rank, moment) in enumerate(zip(self.ranks, moments, strict=True)):
                self.late[place].append(moment - first)
                self.waited[place].append(last - moment)
                self.took[place].append(took[rank][turn])

    def _moment(self, arrived: Sequence[float], took: Sequence[float], turn: int) -> float:
        return arrived[turn] - (took[turn - 1] if self.lopsided else 0.0)

    def summary(self) -> tuple[RankSkew, ...]:
        """A record a rank; empty if there were no iterations, or is nobody to compare with."""
        turns = len(self.late[0])
        if not turns or len(self.ranks) < 2:
            return ()
        typical = [median(each) for each in self.late]
        return tuple(self._of(place, turns, typical) for place in range(len(self.ranks)))

    def _of(self, place: int, turns: int, typical: Sequence[float]) -> RankSkew:
        late = sorted(self.late[place])
        share = self.last[place] / turns
        others = median([each for other, each in enumerate(typical) if other != place])
        often = share > min(0.75, OFTEN / len(self.ranks))
        much = typical[place] > max(LEAST, BEYOND * others)
        return RankSkew(
            rank=self.ranks[place],
            late=typical[place],
            late_p99=quantile(late, 0.99),
            last=share,
            took=median(self.took[place]),
            waited=median(self.waited[place]),
            named=often and much,
        )


def _columns(ranks: Sequence[int]) -> list[array[float]]:
    return [array("d") for _ in ranks]
