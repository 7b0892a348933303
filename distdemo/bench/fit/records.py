"""What ``bench fit`` found, and what it predicts: frozen records; no torch, no rich, no typer.

The model is Hockney's: a message of s bytes takes α + s·β (R. W. Hockney, The communication
challenge for MPP, Parallel Computing 20, 1994).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from distdemo.bench.recording import Difference
from distdemo.bench.records import SeriesSpec
from distdemo.encoding import derived
from distdemo.trace.records import Crossover

MESSAGE = "message"
"""The only way of point-to-point."""
GOOD = 0.25
"""A model whose median relative error is beyond this does not fit."""


class Reason(str, Enum):
    """Why an algorithm's α and β stand for the network."""

    ASKED = "asked for"
    ONLY = "only one"
    BEST = "best fit"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Point:
    """A measured time: the median over all iterations."""

    ranks: int
    size_bytes: int
    median_s: float


@dataclass(frozen=True, slots=True)
class Fit:
    """One algorithm's cost, made to go through the measured times.

    Attributes:
        algorithm: its name in ``trace``; of point-to-point ``message``.
        rounds: how often α is paid, as people write it.
        source: of the algorithm.
        alpha_s: α, what a message takes however small it is.
        beta_s_per_byte: β, what each byte of it takes.
        median_error: of the model's times, relative to the measured ones.
        residuals: (model − measured) / measured, in the order of the points.
    """

    algorithm: str
    rounds: str
    source: str
    alpha_s: float
    beta_s_per_byte: float
    median_error: float
    max_error: float
    residuals: tuple[float, ...]

    @derived
    def is_good(self) -> bool:
        """Whether the model fits."""
        return self.median_error <= GOOD


@dataclass(frozen=True, slots=True)
class FittedSeries:
    """A series, over all numbers of ranks that were measured.

    Attributes:
        spec: of the smallest world.
        ranks: the numbers of ranks that were measured.
        points: that were fitted, by ranks and size.
        fits: by every algorithm of the op, the best first where they can be told apart.
        chosen: the algorithm whose α and β stand for the network in predictions.
    """

    spec: SeriesSpec
    ranks: tuple[int, ...]
    points: tuple[Point, ...]
    fits: tuple[Fit, ...]
    chosen: str
    reason: Reason

    @property
    def best(self) -> Fit:
        """That of the chosen algorithm."""
        return next(fit for fit in self.fits if fit.algorithm == self.chosen)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A size in a world that was not fitted.

    Attributes:
        predicted_s: by algorithm.
        measured_s: what was measured there after all (``--against``).
    """

    size_bytes: int
    predicted_s: dict[str, float]
    measured_s: float | None = None

    @derived
    def fastest(self) -> str:
        """The algorithm that takes least."""
        return min(self.predicted_s, key=lambda name: self.predicted_s[name])


@dataclass(frozen=True, slots=True)
class Prediction:
    """One op on this number of ranks, by each of its algorithms.

    Attributes:
        fit: that α and β come from.
        crossovers: where the fastest algorithm changes, the smallest size first.
    """

    spec: SeriesSpec
    ranks: int
    fit: Fit
    rows: tuple[Predicted, ...]
    crossovers: tuple[Crossover, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A series that can't be fitted, and why: a sentence."""

    spec: SeriesSpec
    why: str


@dataclass(frozen=True, slots=True)
class FitReport:
    """All fits and predictions.

    Attributes:
        files: that were fitted.
        against: that predictions are compared with.
        differences: by the file's name, how it seriously differs from the first one.
    """

    files: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    against: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    differences: dict[str, tuple[Difference, ...]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    ok: ClassVar[bool] = True
