"""Compare two ``bench`` files and tell changes from noise.

A sample is the median of a launch, because all iterations of a world share the same cores and
neighbours. The ratio of two samples and its interval are ``measure.statistics.estimate_ratio``'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import zip_longest
from statistics import fmean

from distdemo.bench.files import BenchFile, differences
from distdemo.bench.judge import disturbance
from distdemo.bench.records import Series, SeriesSpec, SizeRow
from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.measure.statistics import Interval, estimate_ratio, median
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import digits, duration, exact_size, listing, plural
from distdemo.view.tables import Column, Grid

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
class ComparedRow:
    """One size of one series in both files, or all sizes together.

    Attributes:
        size_bytes: Size; None for all sizes together, by the launches' geometric means over them.
        old_median_s: Median over all iterations; None for all sizes.
        new_median_s: The same in the new file.
        ratio: Median of the ratios of every new launch to every old one.
        interval: Confidence interval of the ratio; None if there are too few launches.
        change: Verdict on the ratio.
    """

    size_bytes: int | None
    old_median_s: float | None
    new_median_s: float | None
    ratio: float
    interval: Interval | None
    change: Change


@dataclass(frozen=True, slots=True)
class ComparedSeries:
    """A series that both files have.

    Attributes:
        spec: Spec in the new file.
        rows: All sizes together, then each size that both files have.
    """

    spec: SeriesSpec
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Comparison of two ``bench`` files.

    Attributes:
        fail_over: Threshold from the user, beyond which a slowdown is a failure; None: nothing
            fails, and the threshold is ``THRESHOLD``.
        disturbed: What disturbed either file, with its name, one sentence per series.
        notes: Differences between the files, and the files' own notes, in sentences.
        unmatched: Number of sizes that only one of the files has.
    """

    old_file: str
    new_file: str
    fail_over: float | None
    series: tuple[ComparedSeries, ...]
    disturbed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unmatched: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def threshold(self) -> float:
        """Smallest change that counts, as a share."""
        return THRESHOLD if self.fail_over is None else self.fail_over

    @property
    def rows(self) -> tuple[ComparedRow, ...]:
        """Rows of all series."""
        return tuple(row for series in self.series for row in series.rows)

    @derived
    def outcome(self) -> Change:
        """Outcome of the comparison, the first that fits.

        Slower if any row is; undecided if a series is, over all its sizes; faster if any row is;
        else no change.
        """
        changes = {row.change for row in self.rows}
        if Change.SLOWER in changes:
            return Change.SLOWER
        if any(series.rows[0].change is Change.UNKNOWN for series in self.series):
            return Change.UNKNOWN
        return Change.FASTER if Change.FASTER in changes else Change.NONE

    @property
    def ok(self) -> bool:
        """True unless something is slower and the user wants to fail then."""
        return self.fail_over is None or self.outcome is not Change.SLOWER


# -------------------------------------------------------------------------------------- comparison


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


# -------------------------------------------------------------------------------------------- view


def compare_view(report: CompareReport, _: Signs) -> Iterator[Block]:
    """Yield every series with its rows, the disturbances and notes, the verdict."""
    for series in report.series:
        columns = [Column(name, right=True) for name in ("Size", "Old", "New")]
        grid = Grid([*columns, Column("New/old"), Column("Verdict")])
        for row in series.rows:
            size = "all" if row.size_bytes is None else exact_size(row.size_bytes)
            medians = (row.old_median_s, row.new_median_s)
            times = ("" if seconds is None else duration(seconds) for seconds in medians)
            grid.rows.append([size, *times, _ratio_text(row), row.change.value])
        yield Heading(series.spec.title)
        yield grid
        yield Paragraph()
    for text in report.disturbed:
        yield Paragraph(f"! {text}", colours.UNSURE)
    for text in report.notes:
        yield Paragraph(text, colours.QUIET)
    certain = report.outcome not in (Change.UNKNOWN, Change.SLOWER) and not report.unmatched
    yield Summary(verdict_text(report), (certain or None) if report.ok else False, "!")


def _ratio_text(row: ComparedRow) -> str:
    """Return ``1.21 (1.12-1.30)``."""
    if row.interval is None:
        return digits(row.ratio)
    low, high = map(digits, row.interval)
    return f"{digits(row.ratio)} ({low}-{high})"


def verdict_text(report: CompareReport) -> str:
    """Return the outcome, and the number of sizes with each change."""
    limit = f"{100 * report.threshold:g}%"
    counts = []
    for change in Change:
        count = sum(row.change is change for row in report.rows if row.size_bytes is not None)
        if count:
            word = "unchanged" if change is Change.NONE else change
            counts.append(f"{plural(count, 'size')} {word}")
    texts = {
        Change.SLOWER: f"Slower by more than {limit}",
        Change.FASTER: f"Faster by more than {limit}",
        Change.NONE: f"No change beyond {limit}",
        Change.UNKNOWN: "Can't tell whether anything changed",
    }
    text = f"{texts[report.outcome]}: {listing(counts)}."
    if report.outcome is Change.UNKNOWN:
        text += " Measure again with a larger --budget, while nothing else runs."
    return text if report.ok else f"Failed by --fail-over {limit}: {text}"
