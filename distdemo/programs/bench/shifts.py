"""By what factor one sample of times differs from another, without assuming how they scatter.

The ratio is the Hodges-Lehmann estimate: the median of the ratios of all pairs, one time of each
sample. Its interval is Moses': the pairs' ratios in order, cut at both ends by the critical value
of the Mann-Whitney statistic U, whose distribution is known exactly. Source: M. Hollander,
D. A. Wolfe, Nonparametric Statistical Methods, 2nd edition (1999), sections 4.1 to 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median

ROUNDING = 1e-9
"""So much more than half the error, as a share of it, is no more: the product is rounded."""
EXACT = 2500
"""Pairs up to which U is counted out; beyond, it is normal to more digits than anyone needs."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How a new sample stands to an old one.

    Attributes:
        ratio: new over old.
        interval: of the ratio; None: the samples are too small for the confidence asked for.
    """

    ratio: float
    interval: tuple[float, float] | None


def shift(old: Sequence[float], new: Sequence[float], error: float) -> Shift:
    """The ratio of new to old, and where it lies but for a probability of error.

    Args:
        old: times, independent of each other, all above 0.
        new: likewise.
        error: probability that the interval misses the ratio, both sides together.
    """
    ratios = sorted(after / before for before in old for after in new)
    cut = critical(len(old), len(new), error)
    interval = (ratios[cut - 1], ratios[-cut]) if cut else None
    return Shift(median(ratios), interval)


@lru_cache(maxsize=256)
def critical(m: int, n: int, error: float) -> int:
    """How many of the m·n ordered ratios lie outside at each end, plus one; 0: no interval.

    The largest c for which P(U ≤ c − 1) is at most half the error.
    """
    if m * n > EXACT:
        spread = math.sqrt(m * n * (m + n + 1) / 12)
        below = m * n / 2 + NormalDist().inv_cdf(error / 2) * spread
        return max(0, math.floor(below))
    allowed, total, cut = error / 2 * math.comb(m + n, m) * (1 + ROUNDING), 0, 0
    for count in counts(m, n):
        total += count
        if total > allowed:
            break
        cut += 1
    return cut


def least_error(m: int, n: int) -> float:
    """The smallest probability of error that samples of these sizes can have an interval with."""
    return 2 / math.comb(m + n, m)


@lru_cache(maxsize=64)
def counts(m: int, n: int) -> tuple[int, ...]:
    """In how many orders of m + n numbers U is 0, 1, …, m·n.

    They are the coefficients of the Gaussian binomial (1−q^(n+1))…(1−q^(n+m)) / (1−q)…(1−q^m).
    """
    ways = [1] + [0] * (m * n)
    for step in range(1, m + 1):
        for at in range(m * n, n + step - 1, -1):  # times 1 − q^(n+step)
            ways[at] -= ways[at - n - step]
        for at in range(step, m * n + 1):  # divided by 1 − q^step
            ways[at] += ways[at - step]
    return tuple(ways)
