"""Quantiles, an interval that assumes nothing about the noise, and which rank comes late. No torch.

The medians of two worlds that run the same loop differ by more than the iterations of one would
let expect: threads land on other cores, buffers on other pages. So the independent samples are the
launches, not the iterations (Hunold and Carpen-Amarie, Reproducible MPI Benchmarking Is Still Not
as Easy as You Think, 2016), and the interval of the median is the sign test's on the launches'
medians: between two of their order statistics, whatever their distribution (Hoefler and Belli,
Scientific Benchmarking of Parallel Computing Systems, 2015, rule 7).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from fractions import Fraction
from math import floor

from distdemo.bench.records import CONFIDENCE, RankSkew

OFTEN = 1.5  # times its fair share of iterations that a late rank comes last in
LEAST_LATE_S = 3e-6  # of lateness below which no rank is called late: what a look at a page takes
BEYOND = 2.0  # times the others' median lateness


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the ordered values lies, interpolated linearly.

    Args:
        ordered: at least one, ascending.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def median(values: Sequence[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    return quantile(sorted(values), 0.5)


def interval(
    medians: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """What holds the true median with this confidence or a little more; None for too few.

    The k-th smallest and the k-th largest of m values, k as large as
    2 · Σ C(m, i) / 2^m for i < k allows.

    Args:
        medians: of each launch.
        confidence: 0 to 1.
    """
    count, ordered = len(medians), sorted(medians)
    room = floor(Fraction(1 - confidence) * 2**count / 2)  # 2^m of many is beyond a float
    taken, outside = 0, 1  # how many are left out at each end, and what leaving them out risks
    ways = 1  # C(m, taken), each from the one before it
    while outside <= room and 2 * (taken + 1) <= count:
        ways = ways * (count - taken) // (taken + 1)
        taken += 1
        outside += ways
    return None if taken == 0 else (ordered[taken - 1], ordered[count - taken])


class SkewLog:
    """Which rank comes late to the common start, over all iterations of a series.

    A rank comes to a start from the call before. Where an op does not take equally long on all
    ranks by its nature (a broadcast lets its root go first), what the call took is left out.

    Args:
        ranks: of the world, that take part.
        lopsided: the op does not take equally long on all ranks.
    """

    def __init__(self, ranks: Sequence[int], *, lopsided: bool = False) -> None:
        self._ranks = ranks
        self._lopsided = lopsided
        self._late = [array("d") for _ in ranks]  # seconds after the first rank
        self._waited = [array("d") for _ in ranks]  # seconds until the last rank
        self._took = [array("d") for _ in ranks]
        self._last = [0] * len(ranks)

    def add(self, arrived: Sequence[Sequence[float]], took: Sequence[Sequence[float]]) -> None:
        """Iterations of one visit, a sequence for each rank of the world; their clocks are one.

        The first of a visit is left out: ranks come to it from making their buffers.
        """
        for turn in range(1, len(arrived[0])):
            moments = [
                arrived[rank][turn] - (took[rank][turn - 1] if self._lopsided else 0.0)
                for rank in self._ranks
            ]
            first, last = min(moments), max(moments)
            self._last[moments.index(last)] += 1
            for place, (rank, moment) in enumerate(zip(self._ranks, moments, strict=True)):
                self._late[place].append(moment - first)
                self._waited[place].append(last - moment)
                self._took[place].append(took[rank][turn])

    def summary(self) -> tuple[RankSkew, ...]:
        """A record a rank; empty if there were no iterations, or there is one rank alone."""
        turns = len(self._late[0])
        if not turns or len(self._ranks) < 2:
            return ()
        typical = [median(each) for each in self._late]
        found = []
        for place, rank in enumerate(self._ranks):
            share = self._last[place] / turns
            others = median(typical[:place] + typical[place + 1 :])
            often = share > min(0.75, OFTEN / len(self._ranks))
            found.append(
                RankSkew(
                    rank=rank,
                    late_s=typical[place],
                    late_p99_s=quantile(sorted(self._late[place]), 0.99),
                    last_share=share,
                    took_s=median(self._took[place]),
                    waited_s=median(self._waited[place]),
                    is_late=often and typical[place] > max(LEAST_LATE_S, BEYOND * others),
                )
            )
        return tuple(found)
