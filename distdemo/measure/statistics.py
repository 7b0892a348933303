"""Quantiles, and distribution-free intervals of medians and of their ratios. No torch.

The medians of two worlds that run the same loop differ by more than the scatter within one
suggests, because threads run on other cores and buffers lie on other pages. So the independent
samples are the launches, not the iterations (Hunold and Carpen-Amarie, Reproducible MPI
Benchmarking Is Still Not as Easy as You Think, 2016).

The interval of a median is the sign test's on the launches' medians: it lies between two of their
order statistics and holds for any distribution (Hoefler and Belli, Scientific Benchmarking of
Parallel Computing Systems, 2015, rules 5 and 6).

The ratio of two samples is the Hodges-Lehmann estimate: the median of the ratios of every new time
to every old one. Its interval cuts the ordered ratios at both ends by the critical value of the
Mann-Whitney U, whose distribution is computed exactly (M. Hollander, D. A. Wolfe, Nonparametric
Statistical Methods, 2nd edition 1999, sections 4.1 to 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

CONFIDENCE = 0.95
"""Confidence of the interval of a median."""
FEWEST_LAUNCHES = 6
"""Fewest medians with a distribution-free interval of this confidence: 1 − 2·(1/2)⁶ is 97 %."""
MOST_EXACT_PAIRS = 2500
"""Most pairs of launches for which U is computed exactly; for more, the normal distribution."""

Interval = tuple[float, float]


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of the ordered values, interpolated linearly.

    Args:
        ordered: Values in ascending order, at least one.
        share: Share of the values below the quantile, 0 to 1.
    """
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median(values: Sequence[float]) -> float:
    """Return the median: the middle value, or the mean of the middle two."""
    return quantile(sorted(values), 0.5)


def interval(medians: Sequence[float]) -> Interval | None:
    """Return an interval of the median with at least ``CONFIDENCE``; None for too few launches.

    It reaches from the k-th smallest to the k-th largest of m values, with the largest k for which
    2 · Σ C(m, i) / 2^m over i < k is at most 1 − ``CONFIDENCE``.

    Args:
        medians: Median of each launch.
    """
    count = len(medians)
    room = math.floor(Fraction(1 - CONFIDENCE) * 2**count / 2)  # 2^m may exceed a float
    taken = 0  # values left out at each end
    ways = outside = 1  # C(m, taken), and Σ C(m, i) for i ≤ taken
    while outside <= room and 2 * (taken + 1) <= count:
        ways = ways * (count - taken) // (taken + 1)
        taken += 1
        outside += ways
    ordered = sorted(medians)
    return None if taken == 0 else (ordered[taken - 1], ordered[count - taken])


def estimate_ratio(
    old: Sequence[float], new: Sequence[float], error: float
) -> tuple[float, Interval | None]:
    """Return the ratio of new to old times and its interval; None if the samples are too small.

    Args:
        old: Independent times, all above 0.
        new: The same for the new measurement.
        error: Probability that the interval misses the ratio on either side.
    """
    ratios = sorted(after / before for before in old for after in new)
    cut = u_critical(len(old), len(new), error)
    return median(ratios), (ratios[cut - 1], ratios[-cut]) if cut else None


@lru_cache(maxsize=256)
def u_critical(m: int, n: int, error: float) -> int:
    """Return the critical value of U for samples of m and n: 0 if there is no interval.

    It is the largest c for which P(U ≤ c − 1) is at most half the error. The interval leaves out
    c − 1 of the m·n ordered ratios at each end.
    """
    if m * n > MOST_EXACT_PAIRS:
        spread = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 + NormalDist().inv_cdf(error / 2) * spread))
    # orders[u] is the number of orders of m + n numbers with U = u: a coefficient of the Gaussian
    # binomial (1−q^(n+1))…(1−q^(n+m)) / (1−q)…(1−q^m).
    orders = [1] + [0] * (m * n)
    for step in range(1, m + 1):
        for u in range(m * n, n + step - 1, -1):
            orders[u] -= orders[u - n - step]
        for u in range(step, m * n + 1):
            orders[u] += orders[u - step]
    allowed = error / 2 * math.comb(m + n, m) * (1 + 1e-9)  # the product is rounded
    cut = 0
    total = orders[0]
    while total <= allowed:
        cut += 1
        total += orders[cut]
    return cut
