"""Quantiles, and a distribution-free interval of the median. No torch.

The medians of two worlds that run the same loop differ by more than the scatter within one
suggests, because threads run on other cores and buffers lie on other pages. So the independent
samples are the launches, not the iterations (Hunold and Carpen-Amarie, Reproducible MPI
Benchmarking Is Still Not as Easy as You Think, 2016). The interval of the median is the sign test's
on the launches' medians: it lies between two of their order statistics and holds for any
distribution (Hoefler and Belli, Scientific Benchmarking of Parallel Computing Systems, 2015,
rule 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from distdemo.measure.records import CONFIDENCE


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
