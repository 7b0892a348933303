"""Quantiles, a distribution-free interval of the median, and late ranks. No torch.

The medians of two worlds that run the same loop differ by more than the scatter within one
suggests, because threads run on other cores and buffers lie on other pages. So the independent
samples are the launches, not the iterations (Hunold and Carpen-Amarie, Reproducible MPI
Benchmarking Is Still Not as Easy as You Think, 2016). The interval of the median is the sign test's
on the launches' medians: it lies between two of their order statistics and holds for any
distribution (Hoefler and Belli, Scientific Benchmarking of Parallel Computing Systems, 2015,
rule 7).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from fractions import Fraction
from math import floor

from distdemo.measure.records import CONFIDENCE, RankSkew

OFTEN = 1.5  # a late rank is last in this many times its fair share of iterations
LEAST_LATE_S = 3e-6  # smallest lateness that counts: polling a page takes as long
BEYOND = 2.0  # a late rank's lateness as a multiple of the other ranks' median


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of the ordered values, interpolated linearly.

    Args:
        ordered: Values in ascending order, at least one.
        share: Share of the values below the quantile, 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median(values: Sequence[float]) -> float:
    """Return the median: the middle value, or the mean of the middle two."""
    return quantile(sorted(values), 0.5)


def interval(
    medians: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return an interval of the median with at least this confidence; None for too few launches.

    It reaches from the k-th smallest to the k-th largest of m values, with the largest k for which
    2 · Σ C(m, i) / 2^m over i < k is at most 1 − confidence.

    Args:
        medians: Median of each launch.
        confidence: Confidence, 0 to 1.
    """
    count, ordered = len(medians), sorted(medians)
    room = floor(Fraction(1 - confidence) * 2**count / 2)  # 2^m may exceed a float
    taken, outside = 0, 1  # values left out at each end, and Σ C(m, i) for i ≤ taken
    ways = 1  # C(m, taken), updated from the one before
    while outside <= room and 2 * (taken + 1) <= count:
        ways = ways * (count - taken) // (taken + 1)
        taken += 1
        outside += ways
    return None if taken == 0 else (ordered[taken - 1], ordered[count - taken])


class SkewLog:
    """Collector of each rank's lateness at the common start, over all iterations of a series.

    A rank arrives at a start from the previous call. If an op by design takes longer on some ranks
    (the root of a broadcast returns first), the duration of that call is subtracted.

    Args:
        ranks: Ranks that take part.
        lopsided: True if the op takes longer on some ranks than on others.
    """

    def __init__(self, ranks: Sequence[int], *, lopsided: bool = False) -> None:
        self._ranks = ranks
        self._lopsided = lopsided
        self._late = [array("d") for _ in ranks]  # seconds after the first rank
        self._waited = [array("d") for _ in ranks]  # seconds until the last rank
        self._took = [array("d") for _ in ranks]
        self._last = [0] * len(ranks)

    def add(self, arrived: Sequence[Sequence[float]], took: Sequence[Sequence[float]]) -> None:
        """Add the iterations of one measurement, one sequence per rank, all on one clock.

        The first iteration is left out: ranks arrive at it from allocating their buffers.
        """
        for turn in range(1, len(arrived[0])):
            moments = [
                arrived[rank][turn] - (took[rank][turn - 1] if self._lopsided else 0.0)
                for rank in self._ranks
            ]
            first, last = min(moments), max(moments)
            self._last[moments.index(last)] += 1
            for index, (rank, moment) in enumerate(zip(self._ranks, moments, strict=True)):
                self._late[index].append(moment - first)
                self._waited[index].append(last - moment)
                self._took[index].append(took[rank][turn])

    def summary(self) -> tuple[RankSkew, ...]:
        """Return one record per rank; empty without iterations or for a single rank."""
        turns = len(self._late[0])
        if not turns or len(self._ranks) < 2:
            return ()
        typical = [median(each) for each in self._late]
        skews = []
        for index, rank in enumerate(self._ranks):
            share = self._last[index] / turns
            others = median(typical[:index] + typical[index + 1 :])
            often = share > min(0.75, OFTEN / len(self._ranks))
            skews.append(
                RankSkew(
                    rank=rank,
                    late_s=typical[index],
                    late_p99_s=quantile(sorted(self._late[index]), 0.99),
                    last_share=share,
                    took_s=median(self._took[index]),
                    waited_s=median(self._waited[index]),
                    is_late=often and typical[index] > max(LEAST_LATE_S, BEYOND * others),
                )
            )
        return tuple(skews)
