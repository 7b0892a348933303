"""Report of ``bench fit``: frozen records that need no torch, rich or typer.

The model is Hockney's: a message of s bytes takes α + s·β (R. W. Hockney, The communication
challenge for MPP, Parallel Computing 20, 1994).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from distdemo.bench.records import SeriesSpec
from distdemo.encoding import derived

MESSAGE = "message"
"""Only algorithm of point-to-point operations."""
GOOD = 0.25
"""Largest median relative error of a model that fits."""


@dataclass(frozen=True, slots=True)
class Point:
    """A measured time: the median over all iterations."""

    ranks: int
    size_bytes: int
    median_s: float


@dataclass(frozen=True, slots=True)
class Fit:
    """One algorithm's cost, fitted to the measured times.

    Attributes:
        algorithm: Name in ``trace``; ``message`` for point-to-point.
        source: Publication of the algorithm.
        alpha_s: α, the fixed time per message.
        beta_s_per_byte: β, the time per byte.
        median_error: Median error of the model's times, relative to the measured ones.
        residuals: (model − measured) / measured, in the order of the points.
    """

    algorithm: str
    source: str
    alpha_s: float
    beta_s_per_byte: float
    median_error: float
    max_error: float
    residuals: tuple[float, ...]

    @derived
    def is_good(self) -> bool:
        """True if the model fits."""
        return self.median_error <= GOOD


@dataclass(frozen=True, slots=True)
class FittedSeries:
    """A series over all measured numbers of ranks.

    Attributes:
        spec: Spec of the smallest world.
        ranks: Measured numbers of ranks.
        points: Fitted points, by ranks and size.
        fits: One per algorithm of the op, best first if they can be distinguished.
        chosen: Algorithm whose α and β are used in predictions.
        assumed: True if the times don't distinguish the algorithms and the usual one is chosen.
    """

    spec: SeriesSpec
    ranks: tuple[int, ...]
    points: tuple[Point, ...]
    fits: tuple[Fit, ...]
    chosen: str
    assumed: bool

    @property
    def best(self) -> Fit:
        """Fit of the chosen algorithm."""
        return next(fit for fit in self.fits if fit.algorithm == self.chosen)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A size in a world that was not measured.

    Attributes:
        predicted_s: Time by algorithm.
    """

    size_bytes: int
    predicted_s: dict[str, float]

    @derived
    def fastest(self) -> str:
        """Fastest algorithm."""
        return min(self.predicted_s, key=lambda name: self.predicted_s[name])


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted times of one op on this number of ranks, by each of its algorithms."""

    spec: SeriesSpec
    ranks: int
    rows: tuple[Predicted, ...]


@dataclass(frozen=True, slots=True)
class FitReport:
    """Fits and predictions.

    Attributes:
        files: Files that were fitted.
        predictions: Predictions for the series whose model fits.
        notes: Series left out and differences between the files, in sentences.
    """

    files: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    ok: ClassVar[bool] = True
