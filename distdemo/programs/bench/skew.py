"""Which rank comes late, and by how much: from the moments at which ranks came to each start."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from distdemo.measuring import RankSkew
from distdemo.programs.bench.summary import median, quantile

OFTEN = 1.5  # times its fair share of iterations that a rank which is named comes last in
LEAST = 3e-6  # seconds of lateness below which nobody is named: what a look at a page takes
BEYOND = 2.0  # times the others' median lateness


@dataclass(slots=True)
class SkewLog:
    """All iterations of a series.

    Attributes:
        late: by rank, seconds after the first rank's arrival, an entry an iteration.
        waited: by rank, seconds from its arrival until the last rank's.
        took: by rank, seconds of the call.
        last: by rank, in how many iterations it came last.
    """

    ranks: int
    late: list[array[float]] = field(init=False)
    waited: list[array[float]] = field(init=False)
    took: list[array[float]] = field(init=False)
    last: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.late = [array("d") for _ in range(self.ranks)]
        self.waited = [array("d") for _ in range(self.ranks)]
        self.took = [array("d") for _ in range(self.ranks)]
        self.last = [0] * self.ranks

    def add(self, arrived: Sequence[Sequence[float]], took: Sequence[Sequence[float]]) -> None:
        """Iterations of one visit, a sequence a rank; their clocks are one.

        The first of a visit is left out: ranks come to it from making their buffers.
        """
        for turn in range(1, len(arrived[0])):
            moments = [each[turn] for each in arrived]
            first, last = min(moments), max(moments)
            self.last[moments.index(last)] += 1
            for rank, moment in enumerate(moments):
                self.late[rank].append(moment - first)
                self.waited[rank].append(last - moment)
                self.took[rank].append(took[rank][turn])

    def summary(self) -> tuple[RankSkew, ...]:
        """A record a rank; empty if there were no iterations, or is nobody to compare with."""
        turns = len(self.late[0])
        if not turns or self.ranks < 2:
            return ()
        typical = [median(each) for each in self.late]
        return tuple(self._of(rank, turns, typical) for rank in range(self.ranks))

    def _of(self, rank: int, turns: int, typical: Sequence[float]) -> RankSkew:
        late = sorted(self.late[rank])
        share = self.last[rank] / turns
        others = median([each for place, each in enumerate(typical) if place != rank])
        often = share > min(0.75, OFTEN / self.ranks)
        much = typical[rank] > max(LEAST, BEYOND * others)
        return RankSkew(
            rank=rank,
            late=typical[rank],
            late_p99=quantile(late, 0.99),
            last=share,
            took=median(self.took[rank]),
            waited=median(self.waited[rank]),
            named=often and much,
        )
