"""Compare two ``bench`` files and tell changes from noise.

A sample is the median of a launch, because all iterations of a world share the same cores and
neighbours. The ratio of two samples and its interval are ``measure.statistics.estimate_ratio``'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean

from distdemo.bench.files import BenchFile, differences
from distdemo.bench.judge import disturbance
from distdemo.bench.records import Series, SizeRow
from distdemo.bench.records_files import (
    THRESHOLD,
    Change,
    ComparedRow,
    ComparedSeries,
    CompareReport,
)
from distdemo.errors import UsageError
from distdemo.measure.statistics import Interval, estimate_ratio, median
from distdemo.view.format import plural

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


def compare(old: BenchFile, new: BenchFile, fail_over: float | None = None) -> CompareReport:
    """Return the changes from the old to the new file.

    A series whose ranks were disturbed in either file is undecided, unless its times are the same.

    Args:
        old: The earlier file.
        new: The later file.
        fail_over: Smallest change that counts, and that fails if slower; None for ``THRESHOLD``
            and no failure.

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
    sizes = sum(map(len, matches.values()))
    threshold = THRESHOLD if fail_over is None else fail_over
    compared = []
    all_disturbances: list[str] = []
    for key, pairs in matches.items():
        disturbances = [
            f"{file.file} was disturbed: {why}."
            for file in (old, new)
            if (why := disturbance(file.series[key]))
        ]
        all_disturbances += disturbances
        rows = _compared_rows(pairs, sizes, len(matches), threshold)
        if disturbances and old.series[key].rows != new.series[key].rows:
            rows = (replace(row, change=Change.UNKNOWN) for row in rows)
        compared.append(ComparedSeries(new.series[key].spec, tuple(rows)))
    return CompareReport(
        old.file,
        new.file,
        fail_over,
        tuple(compared),
        tuple(dict.fromkeys(all_disturbances)),
        tuple(_notes(old, new, sizes)),
        _sizes_of(old) + _sizes_of(new) - 2 * sizes,
    )


def _compared_rows(
    pairs: Sequence[tuple[SizeRow, SizeRow]], sizes: int, series: int, threshold: float
) -> Iterator[ComparedRow]:
    """Yield the row of all sizes together, then each size.

    Args:
        pairs: Rows of the same size in both files.
        sizes: Number of sizes of all series, which share the error.
        series: Number of series, likewise.
        threshold: Smallest change that counts, as a share.
    """
    ratio, interval = estimate(*launch_means(pairs), series)
    yield ComparedRow(None, None, None, ratio, interval, change_of(ratio, interval, threshold))
    for before, after in pairs:
        ratio, interval = estimate(launch_medians(before), launch_medians(after), sizes)
        change = change_of(ratio, interval, threshold)
        medians = (before.median_s, after.median_s)
        yield ComparedRow(after.size_bytes, *medians, ratio, interval, change)


def estimate(
    old: Sequence[float], new: Sequence[float], count: int
) -> tuple[float, Interval | None]:
    """Return the ratio of new to old times and its interval.

    Args:
        old: One time per launch, in seconds.
        new: The same for the new file.
        count: Number of intervals that share the error.
    """
    if old == new:  # to the last digit: one measurement, not two
        return 1.0, (1.0, 1.0)
    least = 2 / math.comb(len(old) + len(new), len(old))  # error of the widest interval
    return estimate_ratio(old, new, max(FAMILY_ERROR / count, min(least, MOST_INTERVAL_ERROR)))


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


def launch_medians(row: SizeRow) -> list[float]:
    """Return the median in seconds of each launch that has this size."""
    return [median(times) for times in row.times_s if times]


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


def _common_rows(old: Series, new: Series) -> list[tuple[SizeRow, SizeRow]]:
    before = {row.size_bytes: row for row in old.rows}
    return [(before[row.size_bytes], row) for row in new.rows if row.size_bytes in before]


def _notes(old: BenchFile, new: BenchFile, compared: int) -> Iterator[str]:
    """Yield the differences between the files, and the files' own notes."""
    yield from differences(old, new)
    if old.report.series == new.report.series:
        yield "Both files have the same times: they are one measurement."
    for file in (old, new):
        other_sizes = _sizes_of(file) - compared
        if other_sizes:
            yield f"{plural(other_sizes, 'size')} only in {file.file}."
        yield from (f"{file.file}: {note}" for note in file.report.notes)


def _sizes_of(file: BenchFile) -> int:
    return sum(len(series.rows) for series in file.series.values())


def _nothing_in_common(old: BenchFile, new: BenchFile) -> UsageError:
    def content(file: BenchFile) -> str:
        first = next(iter(file.series.values()))
        return f"{first.spec.title} from {first.rows[0].size_bytes:,} B on"

    return UsageError(
        f"{old.file} and {new.file} have no row in common.",
        f"The old one has {content(old)}; the new one has {content(new)}.",
        "Measure the same op, backend, ranks, dtype and sizes in both.",
    )
