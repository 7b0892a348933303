"""Compare two ``bench`` files and tell changes from noise.

A sample is the median of a launch, because all iterations of a world share the same cores and
neighbours. The ratio of two samples and its interval are ``measure.statistics.estimate_ratio``'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from statistics import fmean
from typing import Literal

from distdemo.bench.files import BenchFile, Difference, differences, launch_medians
from distdemo.bench.records import Series, SeriesSpec, SizeRow, TransportLimit
from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.measure.statistics import Interval, estimate_ratio, median

THRESHOLD = 0.10
"""Default smallest change that counts, as a share."""
REACH = 3
"""Multiple of the threshold that the interval of "no change" may reach, either way."""
FAMILY_ERROR = 0.05
"""Probability that any of the sizes' intervals misses its ratio, divided among them; the same for
the intervals of whole series."""
MOST_INTERVAL_ERROR = 0.01
"""Largest error of one interval with few launches. 6 and 6 launches give only the widest interval,
which misses with probability 2/924."""
DRIFT = 0.02
"""Smallest distance of a change's interval from 1: two runs on one machine differ by as much in all
rows at once, due to caches, heat and neighbours. A larger one would miss changes of 20 %."""

# ----------------------------------------------------------------------------------------- records


class Change(str, Enum):
    """Verdict on a ratio, and outcome of a comparison."""

    __str__ = str.__str__
    SLOWER = "slower"
    FASTER = "faster"
    NONE = "no change"
    UNKNOWN = "undecided"


@dataclass(frozen=True, slots=True)
class LimitShift:
    """One of the machine's own limits in both files.

    Attributes:
        backend: Backend that it was measured with.
    """

    backend: str
    old: TransportLimit
    new: TransportLimit

    @derived
    def time_ratio(self) -> float:
        """New over old time per byte: 2.0 is half the bandwidth."""
        return self.old.bandwidth_bytes_per_s / self.new.bandwidth_bytes_per_s

    @derived
    def latency_ratio(self) -> float | None:
        """New over old latency; None if either file lacks it."""
        if not self.old.latency_s or not self.new.latency_s:
            return None
        return self.new.latency_s / self.old.latency_s


@dataclass(frozen=True, slots=True)
class RatioVerdict:
    """A ratio of new to old times, and whether it is a change.

    Attributes:
        ratio: Median of the ratios of every new launch to every old one.
        interval: Confidence interval of the ratio; None if there are too few launches.
        confidence: Confidence of the interval; None without one.
        old_launches: Number of launches in the old file.
        new_launches: Number of launches in the new file.
    """

    ratio: float
    interval: Interval | None
    confidence: float | None
    change: Change
    old_launches: int
    new_launches: int


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One size of one series, in both files; medians over all iterations."""

    size_bytes: int
    old_median_s: float
    new_median_s: float
    outcome: RatioVerdict


@dataclass(frozen=True, slots=True)
class ComparedSeries:
    """A series that both files have.

    Attributes:
        spec: Spec in the new file.
        overall: Verdict on all sizes together, from the launches' geometric means over the sizes.
    """

    spec: SeriesSpec
    rows: tuple[ComparedRow, ...]
    overall: RatioVerdict


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Sizes of a series that only one file has."""

    file: Literal["old", "new"]
    spec: SeriesSpec
    sizes_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Comparison of two ``bench`` files.

    Attributes:
        fail_over: Threshold from the user, beyond which a slowdown is a failure; None: nothing
            fails, and the threshold is ``THRESHOLD``.
        fail_on: Least serious outcome that is a failure: slower or undecided.
        disturbed: What disturbed either file, with its name, one sentence per series.
        notes: Notes of either file, with its name, and a remark if both are the same.
    """

    old_file: str
    new_file: str
    fail_over: float | None
    series: tuple[ComparedSeries, ...]
    fail_on: Change = Change.SLOWER
    disturbed: tuple[str, ...] = ()
    limits: tuple[LimitShift, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def threshold(self) -> float:
        """Smallest change that counts, as a share."""
        return THRESHOLD if self.fail_over is None else self.fail_over

    @property
    def rows(self) -> tuple[ComparedRow, ...]:
        """Rows of all series."""
        return tuple(row for series in self.series for row in series.rows)

    @property
    def outcomes(self) -> tuple[RatioVerdict, ...]:
        """Verdicts on every series as a whole and on every size."""
        overall = (series.overall for series in self.series)
        return (*overall, *(row.outcome for row in self.rows))

    @derived
    def outcome(self) -> Change:
        """Outcome of the comparison: slower, undecided, faster or no change, the first that fits.

        It is undecided if anything may be slower by more than the threshold: a ratio is beyond it,
        a series has no interval or one that reaches beyond ``REACH`` times the threshold, or the
        machine was disturbed.
        """
        changes = {verdict.change for verdict in self.outcomes}
        if Change.SLOWER in changes:
            return Change.SLOWER
        most = 1 + REACH * self.threshold
        intervals = (series.overall.interval for series in self.series)
        certain = (
            all(verdict.ratio <= 1 + self.threshold for verdict in self.outcomes)
            and all(interval is not None and interval[1] <= most for interval in intervals)
            and not (self.disturbed and Change.UNKNOWN in changes)
        )
        if not certain:
            return Change.UNKNOWN
        return Change.FASTER if Change.FASTER in changes else Change.NONE

    @property
    def ok(self) -> bool:
        """True unless the outcome is one on which the user wants to fail."""
        return self.fail_over is None or self.outcome not in {Change.SLOWER, self.fail_on}


# -------------------------------------------------------------------------------------- comparison


def compare(
    old: BenchFile,
    new: BenchFile,
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
    matches = {
        key: pairs
        for key, series in new.series.items()
        if key in old.series and (pairs := _common_rows(old.series[key], series))
    }
    if not matches:
        raise _nothing_in_common(old, new)
    count = sum(map(len, matches.values()))
    threshold = THRESHOLD if fail_over is None else fail_over
    compared = []
    all_disturbances: list[str] = []
    for key, pairs in matches.items():
        disturbances = list(_disturbances(old, new, key))
        all_disturbances += disturbances
        disturbed = bool(disturbances)
        rows = []
        for before, after in pairs:
            times = (launch_medians(before), launch_medians(after))
            outcome = verdict(*times, count, threshold, disturbed=disturbed)
            rows.append(ComparedRow(after.size_bytes, before.median_s, after.median_s, outcome))
        means = launch_means(pairs)
        overall = verdict(*means, len(matches), threshold, disturbed=disturbed)
        compared.append(ComparedSeries(new.series[key].spec, tuple(rows), overall))
    return CompareReport(
        old_file=old.file,
        new_file=new.file,
        fail_over=fail_over,
        series=tuple(compared),
        fail_on=fail_on,
        disturbed=tuple(dict.fromkeys(all_disturbances)),
        limits=tuple(_limit_shifts(old, new)),
        unmatched=(*_unmatched("old", old, new), *_unmatched("new", new, old)),
        differences=tuple(differences(old, new)),
        notes=tuple(_notes(old, new)),
    )


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


def change_of(ratio: float, interval: Interval | None, threshold: float) -> Change:
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


def launch_means(pairs: Sequence[tuple[SizeRow, SizeRow]]) -> tuple[list[float], list[float]]:
    """Return the geometric mean of each launch over the sizes, for the old and the new file.

    Times are taken relative to the old file's median at their size, so that a launch without the
    sizes that were already steady compares with one that has them all. Launches with less than half
    of the sizes are left out.
    """
    old_medians = [median(launch_medians(before)) for before, _ in pairs]

    def geometric(rows: Sequence[SizeRow]) -> list[float]:
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


# ------------------------------------------------------------------ other contents of the files


def _notes(old: BenchFile, new: BenchFile) -> Iterator[str]:
    """Yield remarks on the files: whether they are the same, and their own notes."""
    if old.report.series == new.report.series:
        yield "Both files have the same times: they are one measurement."
    for recording in (old, new):
        yield from (f"{recording.file}: {note}" for note in recording.report.notes)


def _disturbances(old: BenchFile, new: BenchFile, key: SeriesSpec) -> Iterator[str]:
    """Yield a sentence for each file in which the ranks of this series were disturbed."""
    for recording in (old, new):
        if reason := recording.report.disturbance(recording.series[key]):
            yield f"{recording.file} was disturbed: {reason[0].lower()}{reason[1:]}"


def _limit_shifts(old: BenchFile, new: BenchFile) -> Iterator[LimitShift]:
    """Yield the limits that both files have."""
    for before in old.report.setups:
        after = new.report.setup(before.backend)
        limits = {limit.transport: limit for limit in after.limits} if after else {}
        for limit in before.limits:
            if limit.transport in limits:
                yield LimitShift(before.backend, limit, limits[limit.transport])


def _common_rows(old: Series, new: Series) -> list[tuple[SizeRow, SizeRow]]:
    before = {row.size_bytes: row for row in old.rows}
    return [(before[row.size_bytes], row) for row in new.rows if row.size_bytes in before]


def _unmatched(
    name: Literal["old", "new"], recording: BenchFile, other: BenchFile
) -> Iterator[Unmatched]:
    """Yield the sizes of every series that only this file has."""
    for key, series in recording.series.items():
        rows = other.series[key].rows if key in other.series else ()
        known = {row.size_bytes for row in rows}
        sizes = tuple(row.size_bytes for row in series.rows if row.size_bytes not in known)
        if sizes:
            yield Unmatched(name, series.spec, sizes)


def _nothing_in_common(old: BenchFile, new: BenchFile) -> UsageError:
    def content(recording: BenchFile) -> str:
        first = next(iter(recording.series.values()))
        sizes = [row.size_bytes for row in first.rows]
        return f"{first.spec.title()}, {sizes[0]} to {sizes[-1]} bytes"

    return UsageError(
        f"{old.file} and {new.file} have no row in common.",
        f"The old one has {content(old)}; the new one has {content(new)}.",
        "Measure the same op, backend, ranks, dtype and sizes in both.",
    )
