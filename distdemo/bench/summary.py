"""From the iterations' times to a row: quantiles, and an interval that assumes nothing of noise.

The medians of two worlds that run the same loop differ by more than the iterations of one would
let expect: threads land on other cores, buffers on other pages. So the independent samples are the
launches, not the iterations (Hunold and Carpen-Amarie, Reproducible MPI Benchmarking Is Still Not
as Easy as You Think, 2016), and the interval of the median is the sign test's on the launches'
medians: between two of their order statistics, whatever their distribution (Hoefler and Belli,
Scientific Benchmarking of Parallel Computing Systems, 2015, rule 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from distdemo.bench.old_records import CONFIDENCE, Row


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of the ordered values lies, between two of them linearly.

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


def row(  # noqa: PLR0913 - what was measured, by keyword
    times: Sequence[Sequence[float]],
    *,
    size: int,
    elements: int,
    factor: float,
    precision: float,
    checked: int = 0,
    wrong: int = 0,
) -> Row:
    """The row of these times.

    Args:
        times: at least one, a sequence a launch.
        size: bytes S.
        elements: in S.
        factor: of the busbw.
        precision: half the width of a steady interval, as a share of the median.
        checked: elements that were compared.
        wrong: of these.
    """
    launches = tuple(tuple(launch) for launch in times if len(launch))
    ordered = sorted(each for launch in launches for each in launch)
    middle = quantile(ordered, 0.5)
    found = interval([median(launch) for launch in launches])
    if found is not None:  # launches of unequal length may put the median of all beside it
        found = min(found[0], middle), max(found[1], middle)
    made = Row(
        size=size,
        elements=elements,
        factor=factor,
        times=launches,
        median=middle,
        p10=quantile(ordered, 0.1),
        p90=quantile(ordered, 0.9),
        p99=quantile(ordered, 0.99),
        fastest=ordered[0],
        slowest=ordered[-1],
        interval=found,
        checked=checked,
        wrong=wrong,
    )
    return _marked(made, precision)


def _marked(made: Row, precision: float) -> Row:
    steady = made.spread is not None and made.spread <= precision
    return replace(made, steady=steady)
