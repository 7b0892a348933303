"""What worlds that one does not have would take: on paper, from α and β alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdemo.bench import models
from distdemo.bench.fitting import Crossover, FittedSeries, Link, Predicted, Prediction
from distdemo.bench.models import Algorithm
from distdemo.bench.recorded import Recording, SeriesKey


def predict(
    series: FittedSeries,
    n: int,
    sizes: Sequence[int] = (),
    against: Sequence[Recording] = (),
) -> Prediction:
    """One op on n ranks, by each of its algorithms.

    Args:
        series: as fitted.
        n: 2 ranks or more; no loop goes over them.
        sizes: bytes; by default those that were measured.
        against: recordings that may have measured it.
    """
    link = series.best.link
    ways = models.algorithms(series.op)
    measured = dict(_measured(series.key, n, against))
    known = {point.size for point in series.points}
    asked = sorted(set(sizes) or known | set(measured))
    rows = tuple(Predicted(size, _times(ways, n, size, link), measured.get(size)) for size in asked)
    return Prediction(
        key=series.key,
        op=series.op,
        n=n,
        link=link,
        source=series.chosen,
        rows=rows,
        crossovers=tuple(crossovers(ways, n, link)),
        misfit=series.best.misfit,
    )


def _times(ways: Sequence[Algorithm], n: int, size: int, link: Link) -> dict[str, float]:
    return {each.name: each.seconds(n, size, link.alpha, link.beta) for each in ways}


def _measured(key: SeriesKey, n: int, against: Sequence[Recording]) -> Iterator[tuple[int, float]]:
    for recording in against:
        for series in recording.series:
            if series.key.n == n and alike(series.key, key):
                yield from ((row.size, row.seconds) for row in series.rows)


def alike(one: SeriesKey, other: SeriesKey) -> bool:
    """Whether they differ in the number of ranks, and in the root, at most."""
    return _but_ranks(one) == _but_ranks(other)


def _but_ranks(key: SeriesKey) -> tuple[str | bool | int | None, ...]:
    return (
        key.backend,
        key.command,
        key.form,
        key.in_place,
        key.asynchronous,
        key.dtype,
        key.reduce_op,
        key.pattern,
        key.src,
        key.dst,
    )


def crossovers(ways: Sequence[Algorithm], n: int, link: Link) -> Iterator[Crossover]:
    """Where the fastest algorithm changes: r₁α + s₁Sβ = r₂α + s₂Sβ gives S in closed form.

    The times are straight lines in S. The fastest at each size make their lower envelope, on which
    the slope only falls: from the fewest rounds at 0 B on, the next is the line that is met first.
    """
    now = min(ways, key=lambda way: (way.rounds(n), way.share(n)))
    while link.beta > 0:
        flatter = [way for way in ways if way.share(n) < now.share(n) * (1 - 1e-12)]
        if not flatter:
            return
        met = {way.name: _meeting(now, way, n, link) for way in flatter}
        following = min(flatter, key=lambda way: (met[way.name], way.share(n)))
        yield Crossover(met[following.name], now.name, following.name)
        now = following


def _meeting(one: Algorithm, other: Algorithm, n: int, link: Link) -> float:
    """The size at which both take equally long."""
    rounds = other.rounds(n) - one.rounds(n)
    share = one.share(n) - other.share(n)
    return rounds * link.alpha / (share * link.beta)
