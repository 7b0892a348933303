"""Report of ``bench compare``: frozen records that need no torch, rich or typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from distdemo.encoding import derived
from distdemo.measure.recording import Difference
from distdemo.measure.records import Limit, SeriesSpec

THRESHOLD = 0.10
"""Default smallest change that counts, as a share."""
REACH = 3
"""Multiple of the threshold that the interval of "no change" may reach, either way."""


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
    old: Limit
    new: Limit

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
    interval: tuple[float, float] | None
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
        return (
            *(series.overall for series in self.series),
            *(row.outcome for row in self.rows),
        )

    @derived
    def outcome(self) -> Change:
        """Outcome of the comparison: slower, undecided, faster or no change, the first that fits.

        It is undecided if anything may be slower by more than the threshold: a ratio is beyond it,
        a series has no interval or one that reaches beyond ``REACH`` times the threshold, or the
        machine was disturbed.
        """
        changes = {each.change for each in self.outcomes}
        if Change.SLOWER in changes:
            return Change.SLOWER
        most = 1 + REACH * self.threshold
        intervals = (each.overall.interval for each in self.series)
        certain = (
            all(each.ratio <= 1 + self.threshold for each in self.outcomes)
            and all(interval is not None and interval[1] <= most for interval in intervals)
            and not (self.disturbed and Change.UNKNOWN in changes)
        )
        if not certain:
            return Change.UNKNOWN
        return Change.FASTER if Change.FASTER in changes else Change.NONE

    @property
    def ok(self) -> bool:
        """True unless the outcome is one on which the user wants to fail."""
        failing = {Change.SLOWER, self.fail_on}
        return self.fail_over is None or self.outcome not in failing
