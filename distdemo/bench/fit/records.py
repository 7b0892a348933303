"""What ``bench fit`` found, and what it predicts: frozen records; no torch, no rich, no typer.

The model is Hockney's: a message of s bytes takes α + s·β (R. W. Hockney, The communication
challenge for MPP, Parallel Computing 20, 1994).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from distdemo.bench.records import SeriesSpec
from distdemo.encoding import derived

MESSAGE = "message"
"""The only way of point-to-point."""
GOOD = 0.25
"""A model whose median relative error is beyond this does not fit."""


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
        algorithm: Its name in ``trace``; ``message`` for point-to-point.
        source: Publication of the algorithm.
        alpha_s: α, the time of a message however small it is.
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
    """A series, over all numbers of ranks that were measured.

    Attributes:
        spec: Spec of the smallest world.
        ranks: Numbers of ranks that were measured.
        points: Fitted points, by ranks and size.
        fits: One per algorithm of the op, the best first where they can be told apart.
        chosen: Algorithm whose α and β stand for the network in predictions.
        assumed: True if the times can't tell the algorithms apart, and the usual one is chosen.
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
        """The algorithm that takes least."""
        return min(self.predicted_s, key=lambda name: self.predicted_s[name])


@dataclass(frozen=True, slots=True)
class Prediction:
    """One op on this number of ranks, by each of its algorithms."""

    spec: SeriesSpec
    ranks: int
    rows: tuple[Predicted, ...]


@dataclass(frozen=True, slots=True)
class FitReport:
    """All fits and predictions.

    Attributes:
        files: Files that were fitted.
        predictions: Of the series whose model fits.
        notes: What was left out or differs between the files, in sentences.
    """

    files: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    ok: ClassVar[bool] = True
