"""By what factor one sample of times differs from another, without assuming how they scatter.

The ratio is the Hodges-Lehmann estimate: the median of the ratios of all pairs, one time of each
sample. Its interval is Moses': the pairs' ratios in order, cut at both ends by the critical value
of the Mann-Whitney statistic U, whose distribution is known exactly. Source: M. Hollander,
D. A. Wolfe, Nonparametric Statistical Methods, 2nd edition (1999), sections 4.1 to 4.3.

Samples may come in blocks, each of an old and a new part: of what was measured under the same
circumstances. Then only the pairs within a block count, and U is the sum of the blocks', whose
distribution is theirs put together: as P. van Elteren, On the combination of independent
two-sample tests of Wilcoxon, Bulletin of the International Statistical Institute 37 (1960), but
with every pair of the same weight.
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


Block = tuple[Sequence[float], Sequence[float]]
"""An old and a new sample under the same circumstances."""
Sizes = tuple[tuple[int, int], ...]
"""How large both samples of each block are."""


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
    return blocked([(old, new)], error)


def blocked(blocks: Sequence[Block], error: float) -> Shift:
    """The same, of samples in blocks; at least one has an old and a new time."""
    ratios = sorted(after / before for old, new in blocks for before in old for after in new)
    cut = critical_of(sizes_of(blocks), error)
    interval = (ratios[cut - 1], ratios[-cut]) if cut else None
    return Shift(median(ratios), interval)


def sizes_of(blocks: Sequence[Block]) -> Sizes:
    """How many times each block has."""
    return tuple((len(old), len(new)) for old, new in blocks)


def critical(m: int, n: int, error: float) -> int:
    """How many of the m·n ordered ratios lie outside at each end, plus one; 0: no interval.

    The largest c for which P(U ≤ c − 1) is at most half the error.
    """
    return critical_of(((m, n),), error)


@lru_cache(maxsize=256)
def critical_of(sizes: Sizes, error: float) -> int:
    """The same, of blocks."""
    pairs = sum(m * n for m, n in sizes)
    if pairs > EXACT:
        spread = math.sqrt(sum(m * n * (m + n + 1) for m, n in sizes) / 12)
        return max(0, math.floor(pairs / 2 + NormalDist().inv_cdf(error / 2) * spread))
    ways = _together(sizes)
    allowed, total, cut = error / 2 * sum(ways) * (1 + ROUNDING), 0, 0
    for count in ways:
        total += count
        if total > allowed:
            break
        cut += 1
    return cut


def least_error(m: int, n: int) -> float:
    """The smallest probability of error that samples of these sizes can have an interval with."""
    return least_error_of(((m, n),))


def least_error_of(sizes: Sizes) -> float:
    """The same, of blocks."""
    return 2 / math.prod(math.comb(m + n, m) for m, n in sizes)


def _together(sizes: Sizes) -> tuple[int, ...]:
    """In how many orders within the blocks the sum of their U is 0, 1, … and all pairs."""
    whole: tuple[int, ...] = (1,)
    for each in sizes:
        one, longer = counts(*each), [0] * (len(whole) + each[0] * each[1])
        for at, ways in enumerate(whole):
            for further, more in enumerate(one):
                longer[at + further] += ways * more
        whole = tuple(longer)
    return whole


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
