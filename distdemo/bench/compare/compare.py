"""Two files of ``bench`` compared: is a difference a change, or noise?

What is independent in a file are its launches, not its iterations: within one world all iterations
have the same cores and the same neighbours. So the sample is a launch's median, and a ratio is
Hodges' and Lehmann's: the median of the ratios of every new launch to every old one. Its interval
cuts the ordered ratios at both ends by the critical value of Mann's and Whitney's U, whose
distribution is counted out: nothing is assumed about the noise (M. Hollander, D. A. Wolfe,
Nonparametric Statistical Methods, 2nd edition 1999, sections 4.1 to 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import zip_longest
from statistics import NormalDist, fmean, median
from typing import NamedTuple

from distdemo.backends.contract import Transport
from distdemo.bench.compare.records import (
    THRESHOLD,
    Change,
    ComparedRow,
    ComparedSeries,
    CompareReport,
    Gate,
    LimitShift,
    RatioVerdict,
    Unmatched,
)
from distdemo.bench.recording import Recording, differences, launches, title
from distdemo.bench.records import BenchReport, Limit, Row, Series, Setup
from distdemo.errors import UsageError

ERROR = 0.05
"""The probability that one of all rows' intervals misses its ratio; parted among the rows."""
MOST_ERROR = 0.10
"""The same at most, where the launches are too few for less, ..."""
OWN_ERROR = 0.01
"""... but for this much for each interval. Samples of 6 and 6 launches know no other than the
widest, which misses with 2/924: without it nothing could be told of more than 46 rows."""
DRIFT = 0.05
"""A row's interval has to stay this far away from 1 for a change: two runs on one machine differ by
as much in all rows at once, by what was in its caches, its heat and its neighbours."""
SERIES_DRIFT = 0.02
"""The same for the ratio over all sizes; more would miss changes of 20 %."""
REACH = 3
"""Times the threshold that the interval of "no change" may reach, either way."""
_Kind = tuple[str, Transport, bool]
"""Of limits: backend, transport, all ranks at once."""
EXACT = 2500
"""Pairs of launches up to which U is counted out; beyond, it is as good as normal."""
COPIED = 32 << 10
"""Bytes from which a bandwidth has a part in the time of a message that counts."""


def compare(
    old: Recording,
    new: Recording,
    threshold: float = THRESHOLD,
    fail_over: float | None = None,
) -> CompareReport:
    """What changed from the old to the new file.

    Args:
        old: the earlier file.
        new: the later one.
        threshold: how far a ratio has to be from 1 to be called a change, a share.
        fail_over: how much slower is a failure, a share; None: nothing is.

    Raises:
        UsageError: they have no size of any series in common.
    """
    both = [
        (series.spec, common)
        for key, series in new.series.items()
        if key in old.series and (common := _common(old.series[key], series))
    ]
    if not both:
        raise _nothing_in_common(old, new)
    limits = tuple(_limits(old.report, new.report))
    count = sum(len(common) for _, common in both)
    found = []
    for spec, common in both:
        judge = partial(
            verdict,
            threshold=threshold,
            fail_over=fail_over,
            limits=_relevant(limits, new.report, spec.backend),
        )
        rows = []
        for before, after in common:
            sample = list(launches(before).values()), list(launches(after).values())
            error = error_of(len(sample[0]), len(sample[1]), count, MOST_ERROR)
            outcome = judge(*sample, error, DRIFT, after.size_bytes)
            rows.append(ComparedRow(after.size_bytes, before.median_s, after.median_s, outcome))
        sample = means(common)
        error = error_of(len(sample[0]), len(sample[1]), len(both), ERROR)
        overall = judge(*sample, error, SERIES_DRIFT, common[-1][1].size_bytes)
        found.append(ComparedSeries(spec, tuple(rows), overall))
    return CompareReport(
        old_file=old.file,
        new_file=new.file,
        threshold=threshold,
        fail_over=fail_over,
        series=tuple(found),
        limits=limits,
        unmatched=tuple(_unmatched(old, new)),
        differences=tuple(differences(old, new)),
        blocks=tuple(
            f"{word} file, {setup.backend}"
            for word, each in (("old", old), ("new", new))
            for setup in each.report.setups
            if _are_blocks(each.report, setup)
        ),
    )


# ------------------------------------------------------------------------------------ statistics


class RatioEstimate(NamedTuple):
    """A ratio, and its interval; None: the samples are too small for one."""

    ratio: float
    interval: tuple[float, float] | None


def shift(old: Sequence[float], new: Sequence[float], error: float) -> RatioEstimate:
    """The ratio of new to old, and the interval that holds it but for a probability of error.

    Args:
        old: times, independent of each other, all above 0.
        new: likewise.
        error: probability that the interval misses the ratio, both sides together.
    """
    ratios = sorted(after / before for before in old for after in new)
    cut = critical(len(old), len(new), error)
    return RatioEstimate(median(ratios), (ratios[cut - 1], ratios[-cut]) if cut else None)


@lru_cache(maxsize=256)
def critical(m: int, n: int, error: float) -> int:
    """How many of m·n ordered ratios lie outside at each end, plus one; 0: there is no interval.

    The largest c for which P(U ≤ c − 1) is at most half the error.
    """
    if m * n > EXACT:
        spread = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 + NormalDist().inv_cdf(error / 2) * spread))
    # In how many orders of m + n numbers U is 0, 1, …, m·n: the coefficients of the Gaussian
    # binomial (1−q^(n+1))…(1−q^(n+m)) / (1−q)…(1−q^m).
    orders = [1] + [0] * (m * n)
    for step in range(1, m + 1):
        for at in range(m * n, n + step - 1, -1):
            orders[at] -= orders[at - n - step]
        for at in range(step, m * n + 1):
            orders[at] += orders[at - step]
    allowed = error / 2 * math.comb(m + n, m) * (1 + 1e-9)  # the product is rounded
    total, cut = 0, 0
    while (total := total + orders[cut]) <= allowed:
        cut += 1
    return cut


def error_of(m: int, n: int, count: int, most: float) -> float:
    """The probability of missing that each of several intervals gets.

    Args:
        m: launches of the old sample.
        n: of the new one.
        count: of the intervals.
        most: for all of them together, unless ``OWN_ERROR`` for each is more.
    """
    least = 2 / math.comb(m + n, m)  # that samples of these sizes can have an interval with
    return max(ERROR / count, min(least, max(most / count, OWN_ERROR)))


def means(pairs: Sequence[tuple[Row, Row]]) -> tuple[list[float], list[float]]:
    """Each launch's geometric mean over the sizes, of the old and of the new file.

    A time counts as a multiple of what is usual at its size, so that a launch that left out some
    sizes, steady by then, compares with one that has them all. A launch with less than half of the
    sizes is left out.
    """
    usual = [median(launches(before).values()) for before, _ in pairs]

    def of(rows: Sequence[Row]) -> list[float]:
        found = []
        for launch in zip_longest(*(row.times_s for row in rows), fillvalue=()):
            known = [
                math.log(median(times) / each)
                for times, each in zip(launch, usual, strict=True)
                if times
            ]
            if known and 2 * len(known) >= len(rows):
                found.append(math.exp(fmean(known)))
        return found

    return of([before for before, _ in pairs]), of([after for _, after in pairs])


# -------------------------------------------------------------------------------------- verdicts


def verdict(  # noqa: PLR0917 - two samples, and how they are judged
    old: Sequence[float],
    new: Sequence[float],
    error: float,
    drift: float,
    size_bytes: int,
    *,
    threshold: float,
    fail_over: float | None,
    limits: Sequence[LimitShift],
) -> RatioVerdict:
    """The verdict on two samples of times.

    Args:
        old: a time a launch, seconds.
        new: likewise.
        error: probability that the interval may miss the ratio with.
        drift: runs differ by this share anyway.
        size_bytes: of the largest message.
        threshold: how far a ratio has to be from 1 to be called a change, a share.
        fail_over: how much slower is a failure; None: nothing is.
        limits: of the machine itself, that may explain a change.
    """
    ratio, interval = shift(old, new, error)
    explanation = _explanation(ratio, limits, size_bytes)
    change, gate = change_of(ratio, interval, threshold, drift), None
    explained = explanation is not None and change in (Change.SLOWER, Change.FASTER)
    if fail_over is not None:
        gate = Gate.UNKNOWN
        if change_of(ratio, interval, fail_over, drift) is Change.SLOWER:
            gate = Gate.UNKNOWN if explanation else Gate.FAILS
            explained = explained or explanation is not None
        elif interval and max(ratio, (interval[1] - 1) / REACH + 1) <= 1 + fail_over:
            gate = Gate.PASSES
    return RatioVerdict(
        ratio=ratio,
        interval=interval,
        confidence=None if interval is None else 1 - error,
        change=Change.UNKNOWN if explained and change is not Change.NONE else change,
        old_launches=len(old),
        new_launches=len(new),
        gate=gate,
        explained_by=explanation if explained else None,
    )


def change_of(
    ratio: float, interval: tuple[float, float] | None, threshold: float, drift: float
) -> Change:
    """A change is beyond the threshold, and its interval beyond what runs differ by anyway.

    None is within it, and its interval within ``REACH`` times the threshold, both ways. All else,
    and what has no interval, cannot be told.
    """
    if interval is None:
        return Change.UNKNOWN
    low, high = interval
    if ratio > 1 + threshold:
        return Change.SLOWER if low > 1 + drift else Change.UNKNOWN
    if ratio < 1 / (1 + threshold):
        return Change.FASTER if high < 1 / (1 + drift) else Change.UNKNOWN
    most = 1 + REACH * threshold
    return Change.NONE if 1 / most <= low and high <= most else Change.UNKNOWN


def _explanation(ratio: float, limits: Sequence[LimitShift], size_bytes: int) -> LimitShift | None:
    """The limit that changed most, if it changed in the same direction by more than this did.

    A latency may explain any message, a bandwidth only one that is long enough.
    """

    def reach(limit: LimitShift) -> float:
        found = [limit.latency_ratio or 1.0]
        found += [limit.bandwidth_time_ratio] * (size_bytes >= COPIED)
        return max(math.log(each) if ratio > 1 else -math.log(each) for each in found)

    best = max(limits, key=reach, default=None)
    return best if best is not None and reach(best) > abs(math.log(ratio)) else None


# -------------------------------------------------------------- what else the files differ in


def _limits(old: BenchReport, new: BenchReport) -> Iterator[LimitShift]:
    """The limits that both files have; of several links of one kind the median."""

    def by_kind(report: BenchReport) -> dict[_Kind, tuple[float, float | None]]:
        kinds: dict[_Kind, list[Limit]] = {}
        for setup in report.setups:
            for limit in setup.limits:
                key = setup.backend, limit.transport, limit.at_once
                kinds.setdefault(key, []).append(limit)
        found = {}
        for key, limits in kinds.items():
            latencies = [each.latency_s for each in limits if each.latency_s]
            bandwidth = median(each.bandwidth_bytes_per_s for each in limits)
            found[key] = bandwidth, median(latencies) if latencies else None
        return found

    before, after = by_kind(old), by_kind(new)
    for key in before:
        if key in after and min(before[key][0], after[key][0]) > 0:
            (one, early), (other, late) = before[key], after[key]
            yield LimitShift(*key, one, other, early, late)


def _relevant(
    limits: Sequence[LimitShift], report: BenchReport, backend: str
) -> Sequence[LimitShift]:
    """Those that a backend's messages depend on: its transport, and copies in memory."""
    setup = report.setup(backend)
    known = {Transport.MEMORY_COPY, Transport.DEVICE_COPY}
    if setup is not None and setup.bound is not None:
        known.add(setup.bound.transport)
    return [each for each in limits if each.backend == backend and each.transport in known]


def _are_blocks(report: BenchReport, setup: Setup) -> bool:
    """Whether the ranks came to life less often than there are rows of times.

    One launch verifies, and each row of times has one of its own; but where a world can begin only
    once, its blocks stand for launches.
    """
    mine = (each for each in report.series if each.spec.backend == setup.backend)
    most = max((len(row.times_s) for each in mine for row in each.rows), default=0)
    return 1 < most >= setup.launches


def _common(old: Series, new: Series) -> list[tuple[Row, Row]]:
    before = {row.size_bytes: row for row in old.rows}
    return [(before[row.size_bytes], row) for row in new.rows if row.size_bytes in before]


def _unmatched(old: Recording, new: Recording) -> Iterator[Unmatched]:
    for file, here, there in (("old", old, new), ("new", new, old)):
        for key, series in here.series.items():
            other = there.series.get(key)
            known = set() if other is None else {row.size_bytes for row in other.rows}
            sizes = tuple(row.size_bytes for row in series.rows if row.size_bytes not in known)
            if sizes:
                yield Unmatched(file, series.spec, sizes, whole=other is None)  # type: ignore[arg-type]  # one of the two


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
