"""Reports of ``bench compare`` and ``bench fit``, as frozen records; no torch, rich or typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from distdemo.bench.records import SeriesSpec
from distdemo.encoding import derived
from distdemo.measure.statistics import Interval

THRESHOLD = 0.10
"""Default smallest change that counts, as a share."""
GOOD = 0.25
"""Largest median relative error of a model that fits."""

# --------------------------------------------------------------------------------------- compare


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


# ------------------------------------------------------------------------------------------- fit


@dataclass(frozen=True, slots=True)
class Fit:
    """One algorithm's cost, fitted to the measured times.

    Attributes:
        algorithm: Name in ``trace``; ``message`` for point-to-point.
        alpha_s: α, the fixed time per message.
        beta_s_per_byte: β, the time per byte.
        median_error: Median error of the model's times, relative to the measured ones.
    """

    algorithm: str
    alpha_s: float
    beta_s_per_byte: float
    median_error: float
    max_error: float

    @derived
    def is_good(self) -> bool:
        """True if the model fits."""
        return self.median_error <= GOOD


@dataclass(frozen=True, slots=True)
class FittedSeries:
    """A series over all measured numbers of ranks.

    Attributes:
        spec: Spec without a number of ranks.
        ranks: Measured numbers of ranks.
        sizes_bytes: Measured sizes.
        fits: One per algorithm of the op, best first; with one number of ranks, which can't
            distinguish algorithms, the usual one first. Its α and β are used in predictions.
    """

    spec: SeriesSpec
    ranks: tuple[int, ...]
    sizes_bytes: tuple[int, ...]
    fits: tuple[Fit, ...]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted times of one size on a number of ranks.

    Attributes:
        fitted: Algorithm whose α and β are used: the first fit of the series.
        predicted_s: Time by algorithm.
    """

    spec: SeriesSpec
    fitted: str
    ranks: int
    size_bytes: int
    predicted_s: dict[str, float]

    @derived
    def fastest(self) -> str:
        """Fastest algorithm."""
        return min(self.predicted_s, key=lambda name: self.predicted_s[name])


@dataclass(frozen=True, slots=True)
class FitReport:
    """Fits and predictions.

    Attributes:
        files: Files that were fitted.
        predictions: Predictions for the series whose model fits.
        notes: Series left out, and differences between the files, in sentences.
    """

    files: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    ok: ClassVar[bool] = True
