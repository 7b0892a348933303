"""Fit α and β of Hockney's model to measured times, by each algorithm's cost.

The model: a message of b bytes takes α + b·β (R. W. Hockney, The communication challenge for MPP,
Parallel Computing 20, 1994). An algorithm costs α once per round in which anything is sent, and β
per byte of the largest message in each round. The cost of reducing a byte (γ) can't be separated
from β by timing and is included in β.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median

from distdemo import ops, schedules
from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.measure.recording import Recording, comparable, disturbance, read, title
from distdemo.measure.records import Series, SeriesSpec
from distdemo.schedules.count import Cost, CostModel, costs

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


# --------------------------------------------------------------------------------------- fitting


def costs_of(op: str, ranks: int) -> list[Cost]:
    """Return the cost of each algorithm of this op; empty for a barrier.

    An op with a sender has only one: a single message.
    """
    sends = op in ops.REGISTRY and "src" in ops.REGISTRY[op].takes
    return [Cost(MESSAGE, 1, Fraction(1))] if sends else costs(op, ranks)


def fit(
    recordings: Sequence[Recording], algorithm: str | None = None
) -> tuple[tuple[FittedSeries, ...], tuple[str, ...]]:
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
            if reason := disturbance(recording.report, series):
                disturbed[key] = f"{recording.file} was disturbed. {reason}"
    fitted, skipped = [], []
    for key, members in joined.items():
        smallest = min((each.spec for each in members), key=lambda spec: spec.group_size)
        points = sorted(
            (
                Point(each.spec.group_size, row.size_bytes, row.median_s)
                for each in members
                for row in each.rows
                if each.spec.group_size > 1 and row.size_bytes > 0
            ),
            key=lambda point: (point.ranks, point.size_bytes),
        )
        why = ""
        if not costs_of(smallest.op.op, 2):
            why = f"No algorithm is known for {smallest.operation.command}."
        elif not points:
            why = "One rank sends nothing."
        elif len({point.size_bytes for point in points}) < FEWEST_SIZES:
            why = f"Two unknowns need at least {FEWEST_SIZES} sizes."
        elif key in disturbed:
            why = disturbed[key]
        if why:
            skipped.append(f"Left out: {title(smallest)}: {why}")
        else:
            fitted.append(_fitted(smallest, points, algorithm))
    if not fitted:
        raise UsageError(
            "No series can be fitted.",
            skipped[0],
            "Measure again while nothing else runs (see top)."
            if disturbed
            else "Measure an op on at least two ranks and at three sizes.",
        )
    return tuple(fitted), tuple(skipped)


def link_of_files(paths: Sequence[Path], op: str) -> CostModel:
    """Return α and β of a message, fitted to files of ``bench``.

    If the files have several operations, this one is used, else point-to-point, else the first.

    Args:
        paths: Paths of the files.
        op: torch's name of the op to predict.

    Raises:
        UsageError: A file can't be read, or nothing in them can be fitted.
    """
    fitted, _ = fit([read(path) for path in paths])
    wanted = (op, "p2p")
    best = min(fitted, key=lambda series: (*wanted, series.spec.op.op).index(series.spec.op.op))
    worlds = " and ".join(map(str, best.ranks))
    spec, link = best.spec, best.best
    name = (
        f"{spec.operation.command} over {spec.backend} on {worlds} ranks, taken for {best.chosen}"
    )
    files = tuple(map(str, paths))
    return CostModel(link.alpha_s, link.beta_s_per_byte, files, name)


def _fitted(spec: SeriesSpec, points: Sequence[Point], wanted: str | None) -> FittedSeries:
    ranks = tuple(sorted({point.ranks for point in points}))
    known = {n: {each.algorithm: each for each in costs_of(spec.op.op, n)} for n in ranks}
    sources = {each.name: each.source for each in schedules.of_op(spec.op.op)}
    fits = []
    for name in known[ranks[0]]:
        paid = [(known[point.ranks][name], point.size_bytes) for point in points]
        pairs = [(each.rounds, float(each.share) * size) for each, size in paid]
        alpha, beta, errors = solve(pairs, [point.median_s for point in points])
        sizes = [abs(each) for each in errors]
        about = name, sources.get(name, HOCKNEY), alpha, beta
        fits.append(Fit(*about, median(sizes), max(sizes), tuple(errors)))
    squares = {fit.algorithm: sum(each * each for each in fit.residuals) for fit in fits}
    # With one number of ranks every algorithm fits equally well, with a different α and β.
    distinct = len(ranks) > 1 and max(squares.values()) > DISTINCT**2 * min(squares.values())
    if distinct:
        fits.sort(key=lambda each: squares[each.algorithm])
    if wanted in squares:
        return FittedSeries(spec, ranks, tuple(points), tuple(fits), wanted, assumed=False)
    assumed = not distinct and len(fits) > 1
    return FittedSeries(spec, ranks, tuple(points), tuple(fits), fits[0].algorithm, assumed)


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

    costs, times = np.array(paid, dtype=float), np.array(seconds)
    scaled = costs / times[:, None]
    width = scaled.max(axis=0)  # rounds and bytes differ by many orders of magnitude
    width[width == 0] = 1.0
    scaled /= width
    ones = np.ones(len(times))
    solution = np.linalg.lstsq(scaled, ones, rcond=None)[0]
    if solution.min() < 0:  # one of them is 0: fit the other alone
        columns = scaled[:, 0], scaled[:, 1]
        alone = [column @ ones / (column @ column or 1.0) for column in columns]
        solution = min(
            (each * np.eye(2)[index] for index, each in enumerate(alone)),
            key=lambda each: float(np.sum((scaled @ each - ones) ** 2)),
        )
    alpha, beta = np.maximum(solution, 0.0) / width
    errors = (costs @ [alpha, beta] - times) / times
    return float(alpha), float(beta), errors.tolist()
