"""What ``bench fit`` found, and what it predicts: frozen records; no torch, no rich, no typer.

The model is Hockney's: a message of s bytes takes α + s·β. α is in seconds, β in seconds a byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distdemo.bench.recorded import SeriesKey

MEDIAN_LIMIT = 0.25
"""A model whose median relative error is beyond this does not fit."""
SYSTEMATIC_LIMIT = 0.10
"""Nor does one whose errors, beyond this in the root mean square, seldom change sign."""
SYSTEMATIC = 0.05
"""Probability of as few changes of sign by chance, below which they count as seldom."""
MOST_RANKS = 1_000_000
ASSUMPTIONS = (
    "Every message costs the measured α + s·β, on each hop, within a machine and between two.",
    "The network has full bisection bandwidth: messages at the same time share no link.",
    "All ranks start at once, none is late, and no two steps overlap.",
    "More ranks than cores, and what reducing costs, are in α and β and stay as measured.",
    "A backend would have to use the algorithm named: whether it does is not known.",
)
"""On which every prediction stands."""

Misfit = Literal["", "error", "systematic"]


@dataclass(frozen=True, slots=True)
class Point:
    """A measured time.

    Attributes:
        n: ranks.
        size: bytes that algbw counts.
        seconds: the median over all iterations.
    """

    n: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Link:
    """What one message costs.

    Attributes:
        alpha: seconds that it takes however small it is.
        beta: seconds for each byte of it.
    """

    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class Bend:
    """Small messages and large ones cost differently, as where a library changes its protocol.

    Attributes:
        size: bytes of the first large one.
        small: the cost below that.
        large: the cost from there on.
        error: median relative error of the two together.
    """

    size: int
    small: Link
    large: Link
    error: float


@dataclass(frozen=True, slots=True)
class Fit:
    """One algorithm's formula, made to go through the measured times.

    Attributes:
        algorithm: its name among the op's.
        formula: as people write it.
        source: of the formula.
        link: α and β.
        alpha_interval: where α lies in 95 of 100 resamplings of the launches; None: too few.
        beta_interval: likewise.
        median_error: of the model's times, relative to the measured ones.
        max_error: likewise.
        misfit: why it does not fit; empty if it does: ``error``, or ``systematic`` errors.
        bend: where it does not fit and two pieces would do much better.
        residuals: (model − measured) / measured, in the order of the points.
    """

    algorithm: str
    formula: str
    source: str
    link: Link
    alpha_interval: tuple[float, float] | None
    beta_interval: tuple[float, float] | None
    median_error: float
    max_error: float
    misfit: Misfit = ""
    bend: Bend | None = None
    residuals: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FittedSeries:
    """A series, over all world sizes that were measured.

    Attributes:
        key: of the smallest world; the others differ from it in n alone.
        op: torch's name.
        points: that were fitted, by n and size.
        fits: by every algorithm of the op, the best first where they can be told apart.
        told_apart: they differ in how well they fit; with one world size they never do.
        chosen: the algorithm whose α and β stand for the network in predictions.
        why: it was chosen, in a sentence.
    """

    key: SeriesKey
    op: str
    points: tuple[Point, ...]
    fits: tuple[Fit, ...]
    told_apart: bool
    chosen: str
    why: str

    @property
    def best(self) -> Fit:
        """That of the chosen algorithm."""
        return next(fit for fit in self.fits if fit.algorithm == self.chosen)

    @property
    def worlds(self) -> tuple[int, ...]:
        """The numbers of ranks that were measured."""
        return tuple(sorted({point.n for point in self.points}))


@dataclass(frozen=True, slots=True)
class Predicted:
    """A size in a world that was not measured.

    Attributes:
        seconds: by algorithm.
        measured: what was measured there after all, for comparison.
    """

    size: int
    seconds: dict[str, float]
    measured: float | None = None

    @property
    def fastest(self) -> str:
        """The algorithm that takes least."""
        return min(self.seconds, key=lambda name: self.seconds[name])


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where two algorithms take equally long.

    Attributes:
        size: bytes, not a whole number as a rule.
        below: the algorithm that is faster for less.
        above: the one for more.
    """

    size: float
    below: str
    above: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One op on so many ranks.

    Attributes:
        link: the α and β that it stands on.
        source: the algorithm that they come from.
        rows: by size.
        crossovers: where the fastest algorithm changes, the smallest size first.
        misfit: the model did not fit what was measured: the prediction is worth less.
    """

    key: SeriesKey
    op: str
    n: int
    link: Link
    source: str
    rows: tuple[Predicted, ...]
    crossovers: tuple[Crossover, ...]
    misfit: Misfit = ""


@dataclass(frozen=True, slots=True)
class FitReport:
    """All fits and predictions.

    Attributes:
        paths: of the files that were fitted.
        against: of those that predictions are held against.
        notes: what a reader should know, in sentences.
    """

    paths: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    against: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
