"""The measurements of each launch. No torch.

The first launch of a backend verifies every size and estimates durations; later launches measure
them. A plan is plain numbers, so that it can be sent to the other nodes of a world that an engine
started.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from distdemo.measure.records import BenchSpec

TRIAL = 3  # iterations per size in the first launch, from which later ones are planned
FEW, MANY = 3, 500  # fewest and most timed iterations per size and launch
USUAL_LAUNCHES = 8  # that a series' budget is first divided among
SPREAD_OVER = 6  # launches that a fixed number of iterations is divided among
WARMUPS = ((1 << 16, 10), (1 << 20, 5), (1 << 24, 2))  # iterations up to this size; beyond it 1

Key = tuple[int, int]
"""Index of a series, and index of a size in it."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One size of one series in one launch.

    Attributes:
        series: Index of the series in the spec.
        point: Index of the size in the series.
        launch: Launch that the times belong to; 0 calibrates and verifies.
        iterations: Timed iterations; 0: the ranks fill ``seconds``.
        warmup: Untimed iterations before them.
        seconds: Time limit of the timed iterations.
    """

    series: int
    point: int
    launch: int
    iterations: int
    warmup: int
    seconds: float = 0.0


Measurements = tuple[Measurement, ...]
"""Measurements of one world, in order."""


def keys(spec: BenchSpec, backend: str) -> list[Key]:
    """Return every size of every series of this backend."""
    return [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]


def first(spec: BenchSpec, backend: str) -> Measurements:
    """Return the first launch: verify every size, and time it to plan the later launches."""
    return tuple(Measurement(*key, 0, TRIAL, warmup(spec, key)) for key in keys(spec, backend))


def later(spec: BenchSpec, launch: int, counts: dict[Key, int]) -> Measurements:
    """Return a timed launch; every second one takes the sizes in reverse order.

    Args:
        spec: Spec of the measurement.
        launch: Number of the launch, starting at 1.
        counts: Iterations of each size that needs more times.
    """
    order = sorted(counts, reverse=launch % 2 == 0)
    return tuple(Measurement(*key, launch, counts[key], warmup(spec, key)) for key in order)


def in_one_world(spec: BenchSpec, backend: str) -> Measurements:
    """Return the plan for a single world, in which blocks replace launches."""
    measurements, mine = first(spec, backend), keys(spec, backend)
    launches = fixed_launches(spec) or USUAL_LAUNCHES
    piece = budget_s(spec, backend) / (launches * max(1, len(mine)))
    for launch in range(1, launches + 1):
        count = 0 if spec.iters is None else share(spec.iters, launch, launches)
        block = later(spec, launch, dict.fromkeys(mine, count))
        measurements += tuple(replace(measurement, seconds=piece) for measurement in block)
    return measurements


def budget_s(spec: BenchSpec, backend: str) -> float:
    """Return the seconds for timing all series of this backend."""
    return spec.budget_s * sum(
        series.backend == backend and bool(series.sizes_bytes) for series in spec.series
    )


def warmup(spec: BenchSpec, key: Key) -> int:
    """Return the untimed iterations of a size: as requested, else fewer for larger sizes."""
    if spec.warmup is not None:
        return spec.warmup
    size = spec.series[key[0]].sizes_bytes[key[1]]
    return next((count for most, count in WARMUPS if size <= most), 1)


def share(total: int, launch: int, launches: int) -> int:
    """Return this launch's share of all iterations; the first launches may have one more."""
    each, more = divmod(total, launches)
    return each + (launch <= more)


def fixed_launches(spec: BenchSpec) -> int | None:
    """Return the number of timed launches, at most one per iteration; None if it is open."""
    if spec.iters is None:
        return spec.launches
    return min(spec.launches or SPREAD_OVER, spec.iters)


def count_for(seconds: float, piece: float) -> int:
    """Return the number of iterations of these seconds that fit into a piece of time."""
    return min(MANY, max(FEW, int(piece / seconds))) if seconds > 0 else FEW
