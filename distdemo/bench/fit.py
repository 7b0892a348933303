"""α and β of every series, by every algorithm of its op, over all numbers of ranks at once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from distdemo.bench import models
from distdemo.bench.fitting import (
    MEDIAN_LIMIT,
    SYSTEMATIC,
    SYSTEMATIC_LIMIT,
    Bend,
    Fit,
    FittedSeries,
    Misfit,
    Point,
)
from distdemo.bench.models import Algorithm
from distdemo.bench.recorded import RecordedRow, RecordedSeries, Recording, SeriesKey
from distdemo.bench.squares import (
    Equation,
    bend,
    chance_of_so_few_runs,
    median_error,
    residuals,
    solve,
)
from distdemo.errors import UsageError

RESAMPLES = 200  # of the launches, for the intervals
INTERVAL = (0.025, 0.975)
APART = 1.25
"""Algorithms are told apart where the worst fits so many times worse than the best."""
BETTER = 0.5
"""Two pieces are worth naming where they leave at most this share of the error."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A point and the launches' medians behind it.

    Attributes:
        source: which recording it is of: its launches are resampled together.
    """

    point: Point
    launches: tuple[float | None, ...]
    source: int


def fit(
    recordings: Sequence[Recording], wanted: str | None = None
) -> tuple[tuple[FittedSeries, ...], tuple[str, ...]]:
    """Every series that has formulas, and notes on those that could not be fitted.

    Args:
        recordings: a series that several of them have on other numbers of ranks is fitted as one.
        wanted: the algorithm to take α and β from; None: the one that fits best.

    Raises:
        UsageError: nothing can be fitted.
    """
    fitted, notes = [], []
    for key, members in _joined(recordings).items():
        samples = _samples(members)
        why_not = _unfit(members, samples)
        if why_not:
            notes.append(f"{key.backend} {key.command} is left out: {why_not}")
        else:
            fitted.append(_series(replace(key, n=_smallest(members)), members, samples, wanted))
    if not fitted:
        raise UsageError(
            "There is nothing that can be fitted.",
            notes[0] if notes else "The files have no series.",
            "Measure an op on two ranks at least, in three sizes at least.",
        )
    return tuple(fitted), tuple(dict.fromkeys(notes))


def _joined(recordings: Sequence[Recording]) -> dict[SeriesKey, list[tuple[int, RecordedSeries]]]:
    """The series by what they have in common but for the number of ranks."""
    found: dict[SeriesKey, list[tuple[int, RecordedSeries]]] = {}
    for number, recording in enumerate(recordings):
        for series in recording.series:
            found.setdefault(replace(series.key, n=0, root=None), []).append((number, series))
    return found


def _samples(members: Iterable[tuple[int, RecordedSeries]]) -> list[Sample]:
    """The points that the model speaks of: more than one rank, more than no byte."""
    found = [
        Sample(Point(series.key.n, row.size, row.seconds), _launches(row), number)
        for number, series in members
        for row in series.rows
        if series.key.n > 1 and row.size > 0
    ]
    return sorted(found, key=lambda sample: (sample.point.n, sample.point.size))


def _launches(row: RecordedRow) -> tuple[float | None, ...]:
    return tuple(median(launch) if launch else None for launch in row.times)


def _smallest(members: Sequence[tuple[int, RecordedSeries]]) -> int:
    return min(series.key.n for _, series in members)


def _unfit(members: Sequence[tuple[int, RecordedSeries]], samples: Sequence[Sample]) -> str:
    """Why it can't be fitted; empty if it can."""
    op = members[0][1].op
    if not models.algorithms(op):
        return f"no formula is known for {op}."
    if all(series.key.n == 1 for _, series in members):
        return "one rank sends nothing."
    if len({sample.point.size for sample in samples}) < 3:
        return "two unknowns need three sizes at least."
    return ""


# ------------------------------------------------------------------------------------------ fitting


def _series(
    key: SeriesKey,
    members: Sequence[tuple[int, RecordedSeries]],
    samples: Sequence[Sample],
    wanted: str | None,
) -> FittedSeries:
    op = members[0][1].op
    fits = [_fit(algorithm, samples) for algorithm in models.algorithms(op)]
    points = tuple(sample.point for sample in samples)
    apart = _told_apart(points, fits)
    ordered = sorted(fits, key=_squares) if apart else fits
    several = len({point.n for point in points}) > 1
    chosen, why = _chosen(ordered, wanted, apart=apart, several=several)
    return FittedSeries(key, op, points, tuple(ordered), apart, chosen, why)


def _squares(found: Fit) -> float:
    return sum(error * error for error in found.residuals)


def _told_apart(points: Sequence[Point], fits: Sequence[Fit]) -> bool:
    """On one number of ranks any α and β can be had from any algorithm, by the factor between."""
    squares = [_squares(each) for each in fits]
    several = len({point.n for point in points}) > 1
    return several and max(squares) > APART**2 * min(squares)


def _is_near(one: Fit, best: Fit) -> bool:
    return _squares(one) <= APART**2 * _squares(best)


def _chosen(
    fits: Sequence[Fit], wanted: str | None, *, apart: bool, several: bool
) -> tuple[str, str]:
    """An algorithm's name, and why it is that one."""
    names = [each.algorithm for each in fits]
    if wanted in names:
        return wanted, "It was asked for."
    if len(fits) == 1:
        return names[0], "The op has no other."
    if apart:
        rivals = [each.algorithm for each in fits[1:] if _is_near(each, fits[0])]
        also = f" {' and '.join(rivals)} would do as well, with another α and β." if rivals else ""
        return names[0], f"It fits best.{also}"
    if several:
        return names[0], "It is assumed: no algorithm fits clearly better than the others."
    return names[0], (
        "It is assumed: timing can't tell the algorithms apart here. Measure on another number of "
        "ranks too, and give both files; or say --algorithm."
    )


def _fit(algorithm: Algorithm, samples: Sequence[Sample]) -> Fit:
    equations = [_equation(algorithm, sample.point) for sample in samples]
    link = solve(equations)
    errors = residuals(equations, link)
    misfit = judge(errors, [sample.point for sample in samples])
    alphas, betas = _resampled(algorithm, samples)
    return Fit(
        algorithm=algorithm.name,
        formula=algorithm.words,
        source=algorithm.source,
        link=link,
        alpha_interval=_interval(alphas),
        beta_interval=_interval(betas),
        median_error=median_error(errors),
        max_error=max(map(abs, errors)),
        misfit=misfit,
        bend=_worthwhile(equations, samples, median_error(errors)) if misfit else None,
        residuals=errors,
    )


def _equation(algorithm: Algorithm, point: Point) -> Equation:
    n = point.n
    return algorithm.rounds(n), algorithm.share(n) * point.size, point.seconds


def judge(errors: Sequence[float], points: Sequence[Point]) -> Misfit:
    """Whether what is left is too much, or no noise: its signs go with the size, or with n.

    Args:
        errors: relative, of the points.
        points: by n, then size.
    """
    if median_error(errors) > MEDIAN_LIMIT:
        return "error"
    if fmean(error * error for error in errors) <= SYSTEMATIC_LIMIT**2:
        return ""
    by_size = [error for _, error in sorted(_by_size(errors, points))]
    chance = min(chance_of_so_few_runs(errors), chance_of_so_few_runs(by_size))
    return "systematic" if chance < SYSTEMATIC / 2 else ""


def _by_size(
    errors: Sequence[float], points: Sequence[Point]
) -> Iterable[tuple[tuple[int, int], float]]:
    return (((point.size, point.n), error) for error, point in zip(errors, points, strict=True))


def _worthwhile(
    equations: Sequence[Equation], samples: Sequence[Sample], error: float
) -> Bend | None:
    """Two pieces, where they do much better than one."""
    found = bend(equations, [sample.point.size for sample in samples])
    return found if found is not None and found.error < BETTER * error else None


# -------------------------------------------------------------------------------------- intervals


def _resampled(algorithm: Algorithm, samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """α and β of many draws of as many launches, with replacement (Efron's bootstrap).

    A launch is drawn with all its sizes, as they share its luck. Seeded: the same file gives the
    same intervals.
    """
    launches = _launch_counts(samples)
    if min(launches.values(), default=0) < 2:
        return [], []
    rng, alphas, betas = random.Random(0), [], []
    fixed = [_equation(algorithm, sample.point)[:2] for sample in samples]
    for _ in range(RESAMPLES):
        drawn = {source: rng.choices(range(count), k=count) for source, count in launches.items()}
        times = [_drawn(sample, drawn[sample.source]) for sample in samples]
        found = solve(
            [(*pair, time) for pair, time in zip(fixed, times, strict=True) if time is not None]
        )
        alphas.append(found.alpha)
        betas.append(found.beta)
    return alphas, betas


def _launch_counts(samples: Sequence[Sample]) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    for sample in samples:
        counts[sample.source] = max(counts.get(sample.source, 0), len(sample.launches))
    return counts


def _drawn(sample: Sample, numbers: Sequence[int]) -> float | None:
    """The median of the drawn launches that have this size; None: none of them has."""
    known = len(sample.launches)
    times = [
        time
        for number in numbers
        if number < known and (time := sample.launches[number]) is not None
    ]
    return median(times) if times else None


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in INTERVAL)
    return low, high
