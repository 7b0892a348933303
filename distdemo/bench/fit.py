"""Fit α and β of Hockney's model to measured times by each algorithm's cost, and predict. No torch.

The model: a message of b bytes takes α + b·β (R. W. Hockney, The communication challenge for MPP,
Parallel Computing 20, 1994). An algorithm costs α once per round in which anything is sent, and β
per byte of the largest message in each round. The cost of reducing a byte (γ) can't be separated
from β by timing and is included in β.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from distdemo import ops, schedules
from distdemo.bench.files import BenchFile, comparable, differences
from distdemo.bench.judge import disturbance
from distdemo.bench.records import Series, SeriesSpec
from distdemo.bench.records_files import Fit, FitReport, FittedSeries, Prediction
from distdemo.errors import UsageError
from distdemo.measure.statistics import median

MESSAGE = "message"
"""Only algorithm of point-to-point operations."""
FEWEST_SIZES = 3
"""Fewest sizes to fit: a model with two unknowns fits any two points."""


def make_report(
    recordings: Sequence[BenchFile], ranks: Sequence[int] = (), sizes: Sequence[int] = ()
) -> FitReport:
    """Return the report of ``bench fit``.

    Args:
        recordings: At least one recording; all are fitted together.
        ranks: Sizes of the worlds to predict.
        sizes: Sizes to predict, in bytes.

    Raises:
        UsageError: Nothing can be fitted.
    """
    fitted, notes = fit(recordings)
    for other in recordings[1:]:
        notes += differences(recordings[0], other)
    predictions = tuple(
        prediction
        for series in fitted
        if series.fits[0].is_good
        for n in sorted({*ranks})
        for prediction in predict(series, n, sizes)
    )
    files = tuple(recording.file for recording in recordings)
    return FitReport(files, tuple(fitted), predictions, tuple(notes))


def fit(recordings: Sequence[BenchFile]) -> tuple[list[FittedSeries], list[str]]:
    """Fit every series of an op that has algorithms, over all numbers of ranks at once.

    Args:
        recordings: Recordings; a series with different numbers of ranks is fitted as one.

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
            if reason := disturbance(series):
                disturbed[key] = f"{recording.file} was disturbed: {reason}."
    fitted: list[FittedSeries] = []
    left_out: list[str] = []
    for key, members in joined.items():
        points = _points(members)
        why = disturbed.get(key, "")
        if not costs_of(key.op.op, 2):
            why = f"No algorithm is known for {key.operation.command}."
        elif len({size for _, size, _ in points}) < FEWEST_SIZES:
            why = f"Two unknowns need at least two ranks and {FEWEST_SIZES} sizes."
        if why:
            left_out.append(f"Left out: {key.title}: {why}")
        else:
            fitted.append(_fitted(key, points))
    if not fitted:
        hint = "Measure an op on two or more ranks at three or more sizes, while nothing else runs."
        raise UsageError("No series can be fitted.", left_out[0], hint)
    return fitted, left_out


Point = tuple[int, int, float]
"""Number of ranks, size in bytes, and the median over all iterations in seconds."""


def _points(members: Sequence[Series]) -> list[Point]:
    """Return the measured times by ranks and size; none of one rank or without data."""
    return sorted(
        (series.spec.world_size, row.size_bytes, row.median_s)
        for series in members
        for row in series.rows
        if series.spec.world_size > 1 and row.size_bytes > 0
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of an algorithm on n ranks with a payload of S bytes: ``rounds · α + share · S · β``.

    Exact if all chunks are equal. S is what ``Op.traffic`` counts: one rank's tensor, or all n
    parts if a rank has one for each rank.

    Attributes:
        rounds: Multiple of α.
        share: Multiple of S · β.
    """

    algorithm: str
    rounds: int
    share: Fraction

    def seconds(self, size_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the predicted time in seconds."""
        return self.rounds * alpha_s + float(self.share) * size_bytes * beta_s_per_byte


def costs_of(op: str, ranks: int) -> list[Cost]:
    """Return the cost of each algorithm of this op; empty for a barrier.

    An op with a sender has only one: a single message.
    """
    if op in ops.REGISTRY and "src" in ops.REGISTRY[op].takes:
        return [Cost(MESSAGE, 1, Fraction(1))]
    costs = []
    for algorithm in schedules.of_op(op):
        rounds, *_, serial = algorithm.formulas.values(ranks, algorithm.chunks(ranks))
        costs.append(Cost(algorithm.name, int(rounds), serial))
    return costs


def _fitted(spec: SeriesSpec, points: Sequence[Point]) -> FittedSeries:
    ranks = tuple(sorted({n for n, _, _ in points}))
    sizes = tuple(sorted({size for _, size, _ in points}))
    by_ranks = {n: {cost.algorithm: cost for cost in costs_of(spec.op.op, n)} for n in ranks}
    fits = []
    squares = {}
    for name in by_ranks[ranks[0]]:
        if spec.algorithm not in ("", name):
            continue  # the ranks ran another one
        paid = [
            (by_ranks[n][name].rounds, float(by_ranks[n][name].share) * size)
            for n, size, _ in points
        ]
        alpha, beta, errors = solve(paid, [seconds for _, _, seconds in points])
        squares[name] = sum(error * error for error in errors)
        sizes_of_errors = [abs(error) for error in errors]
        fits.append(Fit(name, alpha, beta, median(sizes_of_errors), max(sizes_of_errors)))
    if len(ranks) > 1:  # else every algorithm fits equally well, with a different α and β
        fits.sort(key=lambda fit: squares[fit.algorithm])
    return FittedSeries(spec, ranks, sizes, tuple(fits))


def solve(
    paid: Sequence[tuple[float, float]], seconds: Sequence[float]
) -> tuple[float, float, list[float]]:
    """Return the α, β ≥ 0 with the least sum of squared relative errors, and these errors.

    Errors are relative because a microsecond is much at 8 B and nothing at 64 MiB.

    Args:
        paid: Multiples of α and β at each point.
        seconds: Measured time of each point, above 0.
    """
    rows = np.array(paid) / np.array(seconds)[:, None]  # rounds·α + bytes·β = 1
    link = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    if link.min() < 0:  # one of them alone
        alone = np.diag(rows.sum(axis=0) / (rows**2).sum(axis=0))
        link = min(alone, key=lambda link: float(((rows @ link - 1) ** 2).sum()))
    alpha, beta = map(float, link)
    return alpha, beta, (rows @ link - 1).tolist()


def predict(series: FittedSeries, ranks: int, sizes: Sequence[int] = ()) -> Iterator[Prediction]:
    """Yield the predicted times of this number of ranks.

    Args:
        series: A fitted series.
        ranks: Number of ranks.
        sizes: Sizes in bytes; if empty, the smallest, a middle and the largest measured one.
    """
    known = series.sizes_bytes
    link = series.fits[0]
    for size in sorted({*(sizes or (known[0], known[len(known) // 2], known[-1]))}):
        times = {
            cost.algorithm: cost.seconds(size, link.alpha_s, link.beta_s_per_byte)
            for cost in costs_of(series.spec.op.op, ranks)
        }
        yield Prediction(series.spec, link.algorithm, ranks, size, times)
