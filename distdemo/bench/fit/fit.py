"""Fit α and β of Hockney's model to measured times by each algorithm's cost, and predict. No torch.

The model: a message of b bytes takes α + b·β (R. W. Hockney, The communication challenge for MPP,
Parallel Computing 20, 1994). An algorithm costs α once per round in which anything is sent, and β
per byte of the largest message in each round. The cost of reducing a byte (γ) can't be separated
from β by timing and is included in β.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

from distdemo import ops, schedules
from distdemo.bench.files import BenchFile, comparable, differences
from distdemo.bench.records import Answer, Series, SeriesSpec
from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.measure.statistics import median
from distdemo.schedules.count import Cost, costs
from distdemo.view.format import plural, plus_minus, short_size

MESSAGE = "message"
"""Only algorithm of point-to-point operations."""
GOOD = 0.25
"""Largest median relative error of a model that fits."""
HOCKNEY = "Hockney 1994"
"""Source of the cost of one message."""
DISTINCT = 1.25
"""Ratio of the worst fit's error to the best above which algorithms can be distinguished."""
FEWEST_SIZES = 3
"""Fewest sizes to fit: a model with two unknowns fits any two points."""

# ----------------------------------------------------------------------------------------- records


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
        notes: Series left out, unsteady files and differences between the files, in sentences.
    """

    files: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    ok: ClassVar[bool] = True


# ---------------------------------------------------------------------------------- fit and predict


def make_report(
    recordings: Sequence[BenchFile],
    *,
    algorithm: str | None = None,
    ranks: Sequence[int] = (),
    sizes: Sequence[int] = (),
) -> FitReport:
    """Return the report of ``bench fit``.

    Args:
        recordings: At least one recording; all are fitted together.
        algorithm: Algorithm to take α and β from; None for the one that fits best.
        ranks: Sizes of the worlds to predict.
        sizes: Sizes to predict, in bytes.

    Raises:
        UsageError: Nothing can be fitted, or no op has the algorithm.
    """
    fitted, notes = fit(recordings, algorithm)
    known = list(dict.fromkeys(fit.algorithm for series in fitted for fit in series.fits))
    if algorithm is not None and algorithm not in known:
        raise UsageError(
            f"--algorithm {algorithm}: none of the measured operations has it.",
            f"Choices: {', '.join(known)}.",
            f"Try --algorithm {known[0]}.",
        )
    for recording in recordings:
        notes += _unsteady_notes(recording)
    for other in recordings[1:]:
        notes += _difference_notes(recordings[0], other)
    predictions = tuple(
        predict(series, n, sizes)
        for series in fitted
        if series.best.is_good
        for n in sorted({*ranks})
    )
    files = tuple(recording.file for recording in recordings)
    return FitReport(files, tuple(fitted), predictions, tuple(notes))


def fit(
    recordings: Sequence[BenchFile], algorithm: str | None = None
) -> tuple[list[FittedSeries], list[str]]:
    """Fit every series of an op that has algorithms, over all numbers of ranks at once.

    Args:
        recordings: Recordings; a series with different numbers of ranks is fitted as one.
        algorithm: Algorithm to take α and β from; None for the one that fits best.

    Returns:
        The fits, and one sentence per series left out.

    Raises:
        UsageError: Nothing can be fitted: no op has an algorithm, there are too few sizes, or the
            machine was disturbed.
    """
    joined: dict[SeriesSpec, list[Series]] = {}
    disturbed: dict[SeriesSpec, str] = {}
    for recording in recordings:
        for series in recording.series.values():
            key = comparable(series.spec, ranks=False)
            joined.setdefault(key, []).append(series)
            if reason := recording.report.disturbance(series):
                disturbed[key] = f"{recording.file} was disturbed. {reason}"
    fitted: list[FittedSeries] = []
    left_out: list[str] = []
    for key, members in joined.items():
        spec = min((series.spec for series in members), key=lambda spec: spec.group_size)
        points = _points(members)
        why = disturbed.get(key, "")
        if not costs_of(spec.op.op, 2):
            why = f"No algorithm is known for {spec.operation.command}."
        elif not points:
            why = "One rank sends nothing."
        elif len({point.size_bytes for point in points}) < FEWEST_SIZES:
            why = f"Two unknowns need at least {FEWEST_SIZES} sizes."
        if why:
            left_out.append(f"Left out: {spec.title()}: {why}")
        else:
            fitted.append(_fitted(spec, points, algorithm))
    if not fitted:
        hint = "Measure an op on at least two ranks and at three sizes."
        if disturbed:
            hint = "Measure again while nothing else runs (see top)."
        raise UsageError("No series can be fitted.", left_out[0], hint)
    return fitted, left_out


def _points(members: Sequence[Series]) -> list[Point]:
    """Return the measured times by ranks and size; none of one rank or without data."""
    points = [
        Point(series.spec.group_size, row.size_bytes, row.median_s)
        for series in members
        for row in series.rows
        if series.spec.group_size > 1 and row.size_bytes > 0
    ]
    return sorted(points, key=lambda point: (point.ranks, point.size_bytes))


def costs_of(op: str, ranks: int) -> list[Cost]:
    """Return the cost of each algorithm of this op; empty for a barrier.

    An op with a sender has only one: a single message.
    """
    sends = op in ops.REGISTRY and "src" in ops.REGISTRY[op].takes
    return [Cost(MESSAGE, 1, Fraction(1))] if sends else costs(op, ranks)


def _fitted(spec: SeriesSpec, points: Sequence[Point], wanted: str | None) -> FittedSeries:
    ranks = tuple(sorted({point.ranks for point in points}))
    by_ranks = {n: {cost.algorithm: cost for cost in costs_of(spec.op.op, n)} for n in ranks}
    sources = {algorithm.name: algorithm.source for algorithm in schedules.of_op(spec.op.op)}
    seconds = [point.median_s for point in points]
    fits = []
    for name in by_ranks[ranks[0]]:
        paid = []
        for point in points:
            cost = by_ranks[point.ranks][name]
            paid.append((cost.rounds, float(cost.share) * point.size_bytes))
        alpha, beta, residuals = solve(paid, seconds)
        errors = [abs(residual) for residual in residuals]
        source = sources.get(name, HOCKNEY)
        fits.append(Fit(name, source, alpha, beta, median(errors), max(errors), tuple(residuals)))
    squares = {fit.algorithm: sum(error * error for error in fit.residuals) for fit in fits}
    # With one number of ranks every algorithm fits equally well, with a different α and β.
    distinct = len(ranks) > 1 and max(squares.values()) > DISTINCT**2 * min(squares.values())
    if distinct:
        fits.sort(key=lambda fit: squares[fit.algorithm])
    chosen = wanted if wanted in squares else fits[0].algorithm
    assumed = wanted not in squares and not distinct and len(fits) > 1
    return FittedSeries(spec, ranks, tuple(points), tuple(fits), chosen, assumed)


def solve(
    paid: Sequence[tuple[float, float]], seconds: Sequence[float]
) -> tuple[float, float, list[float]]:
    """Return the α, β ≥ 0 with the least sum of squared relative errors, and these errors.

    Errors are relative because a microsecond is much at 8 B and nothing at 64 MB.

    Args:
        paid: Multiples of α and β at each point.
        seconds: Measured time of each point, above 0.
    """
    import numpy as np

    costs = np.array(paid, dtype=float)
    times = np.array(seconds)
    scaled = costs / times[:, None]
    width = scaled.max(axis=0)  # rounds and bytes differ by many orders of magnitude
    width[width == 0] = 1.0
    scaled /= width
    ones = np.ones(len(times))
    solution = np.linalg.lstsq(scaled, ones, rcond=None)[0]
    if solution.min() < 0:  # one of them is 0: fit the other alone
        alone = [column @ ones / (column @ column or 1.0) for column in scaled.T]
        solution = min(
            (value * np.eye(2)[index] for index, value in enumerate(alone)),
            key=lambda values: float(np.sum((scaled @ values - ones) ** 2)),
        )
    alpha, beta = np.maximum(solution, 0.0) / width
    errors = (costs @ [alpha, beta] - times) / times
    return float(alpha), float(beta), errors.tolist()


def predict(series: FittedSeries, ranks: int, sizes: Sequence[int]) -> Prediction:
    """Predict one op on this number of ranks by each of its algorithms.

    Args:
        series: A fitted series.
        ranks: Number of ranks, at least 2.
        sizes: Sizes in bytes; empty for the smallest, a middle and the largest fitted size.
    """
    measured = sorted({point.size_bytes for point in series.points})
    default = {measured[0], measured[len(measured) // 2], measured[-1]}
    link = (series.best.alpha_s, series.best.beta_s_per_byte)
    algorithms = costs_of(series.spec.op.op, ranks)
    rows = [
        Predicted(size, {cost.algorithm: cost.seconds(size, *link) for cost in algorithms})
        for size in sorted(set(sizes) or default)
    ]
    spec = replace(series.spec, world_size=ranks, sizes_bytes=(), groups=())
    return Prediction(spec, ranks, tuple(rows))


# ------------------------------------------------------------------------------------------- notes


def _unsteady_notes(recording: BenchFile) -> Iterator[str]:
    """Yield a sentence if the file's medians are uncertain, so that α and β are too."""
    rows = [row for series in recording.series.values() for row in series.rows]
    unsteady = [row for row in rows if not row.steady]
    if not unsteady:
        return
    widest = max(unsteady, key=lambda row: row.spread_share or 0.0)
    width = f"up to {plus_minus(widest.spread_share or 0.0)}, at {short_size(widest.size_bytes)}"
    if any(row.spread_share is None for row in unsteady):
        width = "some have no interval"
    within = plus_minus(recording.report.spec.precision)
    yield (
        f"{recording.file}: {len(unsteady)} of {plural(len(rows), 'size')} not steady within "
        f"{within} ({width}), so α and β are uncertain."
    )
    if recording.report.answer in (Answer.DISTURBED, Answer.SLOW):
        yield f"{recording.file}: bench's answer was {recording.report.answer}."


def _difference_notes(first: BenchFile, other: BenchFile) -> Iterator[str]:
    changed = [
        f"{difference.name} {difference.new}, not {difference.old}"
        for difference in differences(first, other)
        if difference.serious
    ]
    if changed:
        yield f"{other.file} differs from {first.file}: {', '.join(changed)}."
