"""Fit α and β to measured times by each algorithm's cost, and predict other worlds.

The cost comes from the algorithms of ``trace``: α once per round in which anything is sent, β per
byte of the largest message in each round. The cost of reducing a byte (γ) can't be separated from β
by timing and is included in β.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import median

import numpy as np

from distdemo import ops
from distdemo.bench.fit.records import (
    MESSAGE,
    Fit,
    FitReport,
    FittedSeries,
    Point,
    Predicted,
    Prediction,
)
from distdemo.bench.recording import Recording, comparable, differences, title
from distdemo.bench.records import Series, SeriesSpec
from distdemo.errors import UsageError
from distdemo.trace import algorithms
from distdemo.trace.count import Cost, costs

HOCKNEY = "Hockney 1994"
"""Source of the cost of one message."""
DISTINCT = 1.25
"""Ratio of the worst fit's error to the best above which algorithms can be distinguished."""
FEWEST_SIZES = 3
"""Fewest sizes to fit: a model with two unknowns fits any two points."""


def costs_of(op: str, ranks: int) -> list[Cost]:
    """Return the cost of each algorithm of this op; empty for a barrier.

    An op with a sender has only one: a single message.
    """
    sends = op in ops.REGISTRY and "src" in ops.REGISTRY[op].takes
    return [Cost(MESSAGE, 1, Fraction(1))] if sends else costs(op, ranks)


# --------------------------------------------------------------------------------------- fitting


def study(
    recordings: Sequence[Recording],
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
    series, notes = fit(recordings, algorithm)
    known = list(dict.fromkeys(each.algorithm for one in series for each in one.fits))
    if algorithm is not None and algorithm not in known:
        raise UsageError(
            f"--algorithm {algorithm}: none of the measured operations has it.",
            f"Choices: {', '.join(known)}.",
            f"Try --algorithm {known[0]}.",
        )
    first, *others = recordings
    return FitReport(
        files=tuple(each.file for each in recordings),
        series=series,
        predictions=tuple(
            predict(each, n, sizes)
            for each in series
            if each.best.is_good
            for n in sorted({*ranks})
        ),
        notes=(*notes, *(note for each in others for note in _differing(first, each))),
    )


def _differing(first: Recording, other: Recording) -> Iterator[str]:
    found = [each for each in differences(first, other) if each.serious]
    if found:
        words = ", ".join(f"{each.name} {each.new}, not {each.old}" for each in found)
        yield f"{other.file} differs from {first.file}: {words}."


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
        UsageError: Nothing can be fitted.
    """
    joined: dict[SeriesSpec, list[Series]] = {}
    for recording in recordings:
        for series in recording.series.values():
            joined.setdefault(comparable(series.spec, ranks=False), []).append(series)
    fitted, skipped = [], []
    for members in joined.values():
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
        if not costs_of(smallest.op, 2):
            why = f"No algorithm is known for {smallest.command}."
        elif not points:
            why = "One rank sends nothing."
        elif len({point.size_bytes for point in points}) < FEWEST_SIZES:
            why = f"Two unknowns need at least {FEWEST_SIZES} sizes."
        if why:
            skipped.append(f"Left out: {title(smallest)}: {why}")
        else:
            fitted.append(_fitted(smallest, points, algorithm))
    if not fitted:
        raise UsageError(
            "No series can be fitted.",
            skipped[0],
            "Measure an op on at least two ranks and at three sizes.",
        )
    return tuple(fitted), tuple(skipped)


def _fitted(spec: SeriesSpec, points: Sequence[Point], wanted: str | None) -> FittedSeries:
    ranks = tuple(sorted({point.ranks for point in points}))
    known = {n: {each.algorithm: each for each in costs_of(spec.op, n)} for n in ranks}
    sources = {each.name: each.source for each in algorithms.of_op(spec.op)}
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
    costs, times = np.array(paid, dtype=float), np.array(seconds)
    scaled = costs / times[:, None]
    width = scaled.max(axis=0)  # rounds and bytes differ by many orders of magnitude
    width[width == 0] = 1.0
    scaled /= width
    ones = np.ones(len(times))
    found = np.linalg.lstsq(scaled, ones, rcond=None)[0]
    if found.min() < 0:  # one of them is 0: fit the other alone
        columns = scaled[:, 0], scaled[:, 1]
        alone = [column @ ones / (column @ column or 1.0) for column in columns]
        found = min(
            (each * np.eye(2)[index] for index, each in enumerate(alone)),
            key=lambda each: float(np.sum((scaled @ each - ones) ** 2)),
        )
    alpha, beta = np.maximum(found, 0.0) / width
    errors = (costs @ [alpha, beta] - times) / times
    return float(alpha), float(beta), errors.tolist()


# ----------------------------------------------------------------------------------- predictions


def predict(series: FittedSeries, ranks: int, sizes: Sequence[int]) -> Prediction:
    """Predict one op on this number of ranks by each of its algorithms.

    Args:
        series: A fitted series.
        ranks: Number of ranks, at least 2.
        sizes: Sizes in bytes; empty for the smallest, a middle and the largest fitted size.
    """
    known = sorted({point.size_bytes for point in series.points})
    some = {known[0], known[len(known) // 2], known[-1]}
    found, link = costs_of(series.spec.op, ranks), series.best
    rows = [
        Predicted(
            size,
            {
                each.algorithm: each.seconds(size, link.alpha_s, link.beta_s_per_byte)
                for each in found
            },
        )
        for size in sorted(set(sizes) or some)
    ]
    spec = replace(series.spec, group_size=ranks, world_size=ranks, sizes_bytes=(), groups=())
    return Prediction(spec, ranks, tuple(rows))
