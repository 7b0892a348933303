"""Compare two ``bench`` files and tell changes from noise.

The independent samples in a file are its launches, not its iterations: all iterations of a world
share the same cores and neighbours. So a sample is the median of a launch, and the ratio is the
Hodges-Lehmann estimate: the median of the ratios of every new launch to every old one. Its interval
cuts the ordered ratios at both ends by the critical value of the Mann-Whitney U, whose distribution
is computed exactly, without assumptions about the noise (M. Hollander, D. A. Wolfe, Nonparametric
Statistical Methods, 2nd edition 1999, sections 4.1 to 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from statistics import NormalDist, fmean, median
from typing import NamedTuple

from distdemo.bench.compare.records import (
    REACH,
    THRESHOLD,
    Change,
    ComparedRow,
    ComparedSeries,
    CompareReport,
    LimitShift,
    RatioVerdict,
    Unmatched,
)
from distdemo.errors import UsageError
from distdemo.measure.recording import Recording, differences, disturbance, launches, title
from distdemo.measure.records import BenchReport, Row, Series, SeriesSpec

FAMILY_ERROR = 0.05
"""Probability that any of the sizes' intervals misses its ratio, divided among them; the same for
the intervals of whole series."""
MOST_INTERVAL_ERROR = 0.01
"""Largest error of one interval with few launches. 6 and 6 launches give only the widest interval,
which misses with probability 2/924."""
DRIFT = 0.02
"""Smallest distance of a change's interval from 1: two runs on one machine differ by as much in all
rows at once, due to caches, heat and neighbours. A larger one would miss changes of 20 %."""
MOST_EXACT_PAIRS = 2500
"""Most pairs of launches for which U is computed exactly; for more, the normal distribution."""


def compare(
    old: Recording,
    new: Recording,
    fail_over: float | None = None,
    fail_on: Change = Change.SLOWER,
) -> CompareReport:
    """Return the changes from the old to the new file.

    A series whose ranks were disturbed in either file is undecided.

    Args:
        old: The earlier file.
        new: The later file.
        fail_over: Smallest change that counts, and that fails if slower; None for ``THRESHOLD``
            and no failure.
        fail_on: Least serious outcome that fails.

    Raises:
        UsageError: The files have no size of any series in common.
    """
    matches = [
        (series.spec, pairs, list(_disturbances(old, new, key)))
        for key, series in new.series.items()
        if key in old.series and (pairs := _common_rows(old.series[key], series))
    ]
    if not matches:
        raise _nothing_in_common(old, new)
    count = sum(len(pairs) for _, pairs, _ in matches)
    threshold = THRESHOLD if fail_over is None else fail_over
    compared = []
    for spec, pairs, disturbed in matches:
        rows = []
        for before, after in pairs:
            times = list(launches(before).values()), list(launches(after).values())
            outcome = verdict(*times, count, threshold, disturbed=bool(disturbed))
            rows.append(ComparedRow(after.size_bytes, before.median_s, after.median_s, outcome))
        means = launch_means(pairs)
        overall = verdict(*means, len(matches), threshold, disturbed=bool(disturbed))
        compared.append(ComparedSeries(spec, tuple(rows), overall))
    return CompareReport(
        old_file=old.file,
        new_file=new.file,
        fail_over=fail_over,
        series=tuple(compared),
        fail_on=fail_on,
        disturbed=tuple(dict.fromkeys(each for *_, disturbed in matches for each in disturbed)),
        limits=tuple(_limit_shifts(old.report, new.report)),
        unmatched=tuple(_unmatched(old, new)),
        differences=tuple(differences(old, new)),
        notes=tuple(_notes(old, new)),
    )


# ------------------------------------------------------------------------------------ statistics


class RatioEstimate(NamedTuple):
    """A ratio and its interval; None if the samples are too small for one."""

    ratio: float
    interval: tuple[float, float] | None


def estimate_ratio(old: Sequence[float], new: Sequence[float], error: float) -> RatioEstimate:
    """Return the ratio of new to old times with its confidence interval.

    Args:
        old: Independent times, all above 0.
        new: The same for the new file.
        error: Probability that the interval misses the ratio on either side.
    """
    ratios = sorted(after / before for before in old for after in new)
    cut = u_critical(len(old), len(new), error)
    return RatioEstimate(median(ratios), (ratios[cut - 1], ratios[-cut]) if cut else None)


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
    total, cut = 0, 0
    while (total := total + orders[cut]) <= allowed:
        cut += 1
    return cut


def launch_means(pairs: Sequence[tuple[Row, Row]]) -> tuple[list[float], list[float]]:
    """Return the geometric mean of each launch over the sizes, for the old and the new file.

    Times are taken relative to the old file's median at their size, so that a launch without the
    sizes that were already steady compares with one that has them all. Launches with less than half
    of the sizes are left out.
    """
    old_medians = [median(launches(before).values()) for before, _ in pairs]

    def geometric(rows: Sequence[Row]) -> list[float]:
        means = []
        for launch in zip_longest(*(row.times_s for row in rows), fillvalue=()):
            logs = [
                math.log(median(times) / old_median)
                for times, old_median in zip(launch, old_medians, strict=True)
                if times
            ]
            if logs and 2 * len(logs) >= len(rows):
                means.append(math.exp(fmean(logs)))
        return means

    return geometric([before for before, _ in pairs]), geometric([after for _, after in pairs])


# -------------------------------------------------------------------------------------- verdicts


def verdict(
    old: Sequence[float],
    new: Sequence[float],
    count: int,
    threshold: float,
    *,
    disturbed: bool = False,
) -> RatioVerdict:
    """Return the verdict on two samples of times.

    Args:
        old: One time per launch, in seconds.
        new: The same for the new file.
        count: Number of intervals that share the error.
        threshold: Smallest change that counts, as a share.
        disturbed: True if the times aren't the machine's own: then no change is certain.
    """
    if old == new:  # to the last digit: one measurement, not two
        return RatioVerdict(1.0, (1.0, 1.0), 1.0, Change.NONE, len(old), len(new))
    least = 2 / math.comb(len(old) + len(new), len(old))  # error of the widest interval
    error = max(FAMILY_ERROR / count, min(least, MOST_INTERVAL_ERROR))
    ratio, interval = estimate_ratio(old, new, error)
    confidence = None if interval is None else 1 - error
    change = Change.UNKNOWN if disturbed else change_of(ratio, interval, threshold)
    return RatioVerdict(ratio, interval, confidence, change, len(old), len(new))


def change_of(ratio: float, interval: tuple[float, float] | None, threshold: float) -> Change:
    """Return the change that a ratio and its interval show.

    A change is a ratio beyond the threshold whose interval is beyond ``DRIFT``. "No change" is a
    ratio within the threshold whose interval is within ``REACH`` times the threshold, both ways.
    Anything else, and a ratio without an interval, is undecided.
    """
    if interval is None:
        return Change.UNKNOWN
    low, high = interval
    if ratio > 1 + threshold:
        return Change.SLOWER if low > 1 + DRIFT else Change.UNKNOWN
    if ratio < 1 / (1 + threshold):
        return Change.FASTER if high < 1 / (1 + DRIFT) else Change.UNKNOWN
    most = 1 + REACH * threshold
    return Change.NONE if 1 / most <= low and high <= most else Change.UNKNOWN


# ---------------------------------------------------------------------- limits and unmatched rows


def _notes(old: Recording, new: Recording) -> Iterator[str]:
    """Yield remarks on the files: whether they are the same, and their own notes."""
    if old.report.series == new.report.series:
        yield "Both files have the same times: they are one measurement."
    for each in (old, new):
        yield from (f"{each.file}: {note}" for note in each.report.notes)


def _disturbances(old: Recording, new: Recording, key: SeriesSpec) -> Iterator[str]:
    """Yield a sentence for each file in which the ranks of this series were disturbed."""
    for each in (old, new):
        if reason := disturbance(each.report, each.series[key]):
            yield f"{each.file} was disturbed: {reason[0].lower()}{reason[1:]}"


def _limit_shifts(old: BenchReport, new: BenchReport) -> Iterator[LimitShift]:
    """Yield the limits that both files have."""
    before, after = (
        {
            (setup.backend, limit.transport): limit
            for setup in report.setups
            for limit in setup.limits
        }
        for report in (old, new)
    )
    for key, limit in before.items():
        if key in after:
            yield LimitShift(key[0], limit, after[key])


def _common_rows(old: Series, new: Series) -> list[tuple[Row, Row]]:
    before = {row.size_bytes: row for row in old.rows}
    return [(before[row.size_bytes], row) for row in new.rows if row.size_bytes in before]


def _unmatched(old: Recording, new: Recording) -> Iterator[Unmatched]:
    for file, here, there in (("old", old, new), ("new", new, old)):
        for key, series in here.series.items():
            other = there.series.get(key)
            known = set() if other is None else {row.size_bytes for row in other.rows}
            sizes = tuple(row.size_bytes for row in series.rows if row.size_bytes not in known)
            if sizes:
                yield Unmatched(file, series.spec, sizes)  # type: ignore[arg-type]  # "old" or "new"


def _nothing_in_common(old: Recording, new: Recording) -> UsageError:
    first, second = (next(iter(each.series.values())) for each in (old, new))
    one, other = (
        f"{title(each.spec)}, {each.rows[0].size_bytes} to {each.rows[-1].size_bytes} bytes"
        for each in (first, second)
    )
    return UsageError(
        f"{old.file} and {new.file} have no row in common.",
        f"The old one has {one}; the new one has {other}.",
        "Measure the same op, backend, ranks, dtype and sizes in both.",
    )
