"""α and β of what was measured, by each algorithm's schedule, and what other worlds would take.

How often an algorithm pays α and β is counted in ``trace``'s schedules: α once a round in which
anything is sent, β for the bytes of the largest message of each round. What reducing costs for each
byte (γ) cannot be told from β by timing, and is in β.
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
    Reason,
    Skipped,
)
from distdemo.bench.recording import Recording, comparable, differences
from distdemo.bench.records import Series, SeriesSpec
from distdemo.errors import UsageError
from distdemo.trace import algorithms
from distdemo.trace.count import Cost, costs, crossovers

HOCKNEY = ("1", "Hockney 1994")
"""Rounds and source of a message."""
APART = 1.25
"""Algorithms are told apart where the worst fits this many times worse than the best."""
FEWEST_SIZES = 3
"""Two unknowns go through any two points."""


def costs_of(op: str, ranks: int) -> list[Cost]:
    """What each algorithm of this op costs; none for a barrier.

    Where the op takes a sender, one message is all there is.
    """
    sends = op in ops.REGISTRY and "src" in ops.REGISTRY[op].takes
    return [Cost(MESSAGE, 1, Fraction(1))] if sends else costs(op, ranks)


def _described(op: str) -> dict[str, tuple[str, str]]:
    """Of each algorithm of the op its number of rounds as people write it, and its source."""
    found = {each.name: (each.formulas.rounds.words, each.source) for each in algorithms.of_op(op)}
    return {each.algorithm: found.get(each.algorithm, HOCKNEY) for each in costs_of(op, 2)}


# --------------------------------------------------------------------------------------- fitting


def study(
    recordings: Sequence[Recording],
    *,
    against: Sequence[Recording] = (),
    algorithm: str | None = None,
    ranks: Sequence[int] = (),
    sizes: Sequence[int] = (),
) -> FitReport:
    """Everything that ``bench fit`` finds.

    Args:
        recordings: one at least, fitted as one.
        against: not fitted: what they measured is predicted, and shown beside.
        algorithm: to take α and β from; None: the one that fits best.
        ranks: of the worlds to predict.
        sizes: to predict, in bytes.

    Raises:
        UsageError: nothing can be fitted, no op has the algorithm, or a file to compare with has
            nothing of what is fitted.
    """
    series, skipped = fit(recordings, algorithm)
    known = list(dict.fromkeys(each.algorithm for one in series for each in one.fits))
    if algorithm is not None and algorithm not in known:
        raise UsageError(
            f"--algorithm {algorithm}: none of the measured operations has it.",
            f"They have {', '.join(known)}.",
            f"Try --algorithm {known[0]}.",
        )
    fitted = {comparable(each.spec, ranks=False) for each in series}
    for each in against:
        if not fitted & {comparable(spec, ranks=False) for spec in each.series}:
            raise UsageError(
                f"--against {each.file}: it has nothing of what is fitted.",
                "It has to be of the same op, form, backend and dtype.",
                "Leave it out.",
            )
    first, *others = (*recordings, *against)
    found = {
        each.file: tuple(one for one in differences(first, each) if one.serious) for each in others
    }
    return FitReport(
        files=tuple(each.file for each in recordings),
        series=series,
        predictions=tuple(_predictions(series, ranks, sizes, against)),
        against=tuple(each.file for each in against),
        skipped=skipped,
        differences={file: serious for file, serious in found.items() if serious},
    )


def fit(
    recordings: Sequence[Recording], algorithm: str | None = None
) -> tuple[tuple[FittedSeries, ...], tuple[Skipped, ...]]:
    """Every series of an op that has algorithms, over all numbers of ranks at once.

    Args:
        recordings: a series that several of them have on other numbers of ranks is fitted as one.
        algorithm: to take α and β from; None: the one that fits best.

    Raises:
        UsageError: nothing can be fitted.
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
        if not _described(smallest.op):
            why = f"No algorithm is known for {smallest.command}."
        elif not points:
            why = "One rank sends nothing."
        elif len({point.size_bytes for point in points}) < FEWEST_SIZES:
            why = f"Two unknowns need {FEWEST_SIZES} sizes at least."
        if why:
            skipped.append(Skipped(smallest, why))
        else:
            fitted.append(_fitted(smallest, points, algorithm))
    if not fitted:
        raise UsageError(
            "There is nothing that can be fitted.",
            skipped[0].why,
            "Measure an op on two ranks at least, in three sizes at least.",
        )
    return tuple(fitted), tuple(skipped)


def _fitted(spec: SeriesSpec, points: Sequence[Point], wanted: str | None) -> FittedSeries:
    ranks = tuple(sorted({point.ranks for point in points}))
    known = {n: {each.algorithm: each for each in costs_of(spec.op, n)} for n in ranks}
    fits = []
    for name, (rounds, source) in _described(spec.op).items():
        paid = [(known[point.ranks][name], point.size_bytes) for point in points]
        pairs = [(each.rounds, float(each.share) * size) for each, size in paid]
        alpha, beta, errors = solve(pairs, [point.median_s for point in points])
        sizes = [abs(each) for each in errors]
        about = name, rounds, source, alpha, beta
        fits.append(Fit(*about, median(sizes), max(sizes), tuple(errors)))
    squares = {fit.algorithm: sum(each * each for each in fit.residuals) for fit in fits}
    # On one number of ranks any times can be had from any algorithm, with another α and β.
    apart = len(ranks) > 1 and max(squares.values()) > APART**2 * min(squares.values())
    if apart:
        fits.sort(key=lambda each: squares[each.algorithm])
    chosen, reason = fits[0].algorithm, Reason.BEST if apart else Reason.ASSUMED
    if wanted in squares:
        chosen, reason = wanted, Reason.ASKED
    elif len(fits) == 1:
        reason = Reason.ONLY
    return FittedSeries(spec, ranks, tuple(points), tuple(fits), chosen, reason)


def solve(
    paid: Sequence[tuple[float, float]], seconds: Sequence[float]
) -> tuple[float, float, list[float]]:
    """The α, β ≥ 0 with the least sum of squared relative errors, and these errors.

    Relative, as an error of a microsecond is much at 8 B and nothing at 64 MB.

    Args:
        paid: how often α is, and β, at each point.
        seconds: what each took, above 0.
    """
    costs, times = np.array(paid, dtype=float), np.array(seconds)
    scaled = costs / times[:, None]
    width = scaled.max(axis=0)  # rounds and bytes differ by many orders of magnitude
    width[width == 0] = 1.0
    scaled /= width
    ones = np.ones(len(times))
    found = np.linalg.lstsq(scaled, ones, rcond=None)[0]
    if found.min() < 0:  # then one of them is 0, and the other does what it can alone
        lone = [scaled[:, at] @ ones / (scaled[:, at] @ scaled[:, at] or 1.0) for at in (0, 1)]
        found = min(
            (each * np.eye(2)[at] for at, each in enumerate(lone)),
            key=lambda each: float(np.sum((scaled @ each - ones) ** 2)),
        )
    alpha, beta = np.maximum(found, 0.0) / width
    errors = (costs @ [alpha, beta] - times) / times
    return float(alpha), float(beta), errors.tolist()


# ----------------------------------------------------------------------------------- predictions


def _predictions(
    series: Sequence[FittedSeries],
    ranks: Sequence[int],
    sizes: Sequence[int],
    against: Sequence[Recording],
) -> Iterator[Prediction]:
    for each in series:
        measured: dict[int, dict[int, float]] = {}
        for recording in against:
            for key, other in recording.series.items():
                if comparable(key, ranks=False) == comparable(each.spec, ranks=False):
                    rows = {row.size_bytes: row.median_s for row in other.rows if row.size_bytes}
                    measured.setdefault(key.group_size, {}).update(rows)
        measured.pop(1, None)
        for n in sorted({*ranks, *measured}):
            yield predict(each, n, sizes, measured.get(n, {}))


def predict(
    series: FittedSeries, ranks: int, sizes: Sequence[int], measured: dict[int, float]
) -> Prediction:
    """One op on this number of ranks, by each of its algorithms.

    Args:
        series: as fitted.
        ranks: 2 or more.
        sizes: bytes; empty: those measured there, else the smallest, a middle one and the largest
            that were fitted.
        measured: seconds that it took there, by size.
    """
    known = sorted({point.size_bytes for point in series.points})
    some = {known[0], known[len(known) // 2], known[-1]}
    fit, found = series.best, costs_of(series.spec.op, ranks)
    link = fit.alpha_s, fit.beta_s_per_byte
    rows = [
        Predicted(
            size,
            {each.algorithm: each.seconds(size, *link) for each in found},
            measured.get(size),
        )
        for size in sorted(set(sizes) or set(measured) or some)
    ]
    return Prediction(
        spec=replace(series.spec, group_size=ranks, world_size=ranks, sizes_bytes=(), groups=()),
        ranks=ranks,
        fit=fit,
        rows=tuple(rows),
        crossovers=tuple(crossovers(found, *link)),
    )
