"""The measurements of each launch. No torch.

The first launch of a backend verifies every size and estimates durations; later launches measure
them. A plan is plain numbers, so that it can be sent to the other nodes of a world that an engine
started.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from distdemo.measure.records import BenchSpec

CALIBRATION_ITERS = 3  # per size in the first launch, from which later ones are planned
FEWEST_ITERS, MOST_ITERS = 3, 500  # timed iterations per size and launch
ENOUGH_ITERS = 15
"""Timed iterations of a quick size in any launch. gloo's threads now and then wait for a scheduler
turn of 4 ms, and the median of three iterations is sometimes one of these."""
QUICK_S = 0.03  # seconds that such iterations may take
DEFAULT_LAUNCHES = 12
"""Launches that the budget is first divided among. The interval of 12 medians leaves out the two
smallest and the two largest; that of 8 leaves out none."""
FIRST_SHARE = 0.5  # of the budget that the first launch may take
LAUNCHES_OF_FIXED = 6  # that a fixed number of iterations is divided among
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
        within_s: Seconds after rank 0's start, after which it is skipped.
    """

    series: int
    point: int
    launch: int
    iterations: int
    warmup: int
    seconds: float = 0.0
    within_s: float = math.inf


Measurements = tuple[Measurement, ...]
"""Measurements of one world, in order."""


def keys_of(spec: BenchSpec, backend: str) -> list[Key]:
    """Return every size of every series of this backend."""
    return [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]


def first_launch(spec: BenchSpec, backend: str, within_s: float = math.inf) -> Measurements:
    """Return the first launch: verify every size, and time it to plan the later launches.

    All series start with their smallest size, which is measured in any case. If time runs out, the
    largest sizes of all are left out.

    Args:
        spec: Spec of the measurement.
        backend: Backend to measure.
        within_s: Seconds after rank 0's start, after which sizes are left out.
    """
    return tuple(
        Measurement(
            *key, 0, CALIBRATION_ITERS, warmup(spec, key), within_s=within_s if key[1] else math.inf
        )
        for key in sorted(keys_of(spec, backend), key=lambda key: (key[1], key[0]))
    )


def timed_launch(
    spec: BenchSpec, launch: int, counts: dict[Key, int], within_s: float = math.inf
) -> Measurements:
    """Return a timed launch; every second one takes the sizes in reverse order.

    Args:
        spec: Spec of the measurement.
        launch: Number of the launch, starting at 1.
        counts: Iterations of each size that needs more times.
        within_s: Seconds after rank 0's start, after which sizes are skipped.
    """
    order = sorted(counts, reverse=launch % 2 == 0)
    return tuple(
        Measurement(*key, launch, counts[key], warmup(spec, key), within_s=within_s)
        for key in order
    )


def single_world(spec: BenchSpec, backend: str, budget_s: float = math.inf) -> Measurements:
    """Return the measurements of a single world, in which blocks replace launches.

    Args:
        spec: Spec of the measurement.
        backend: Backend to measure.
        budget_s: Seconds for all of them; infinite with ``iters``.
    """
    measurements = first_launch(spec, backend, FIRST_SHARE * budget_s)
    keys = keys_of(spec, backend)
    launches = fixed_launches(spec) or DEFAULT_LAUNCHES
    for launch in range(1, launches + 1):
        count = 0 if spec.iters is None else share_of(spec.iters, launch, launches)
        block = timed_launch(spec, launch, dict.fromkeys(keys, count), budget_s)
        if spec.iters is None:
            seconds = (1 - FIRST_SHARE) * budget_s / (launches * max(1, len(keys)))
            block = tuple(replace(measurement, seconds=seconds) for measurement in block)
        measurements += block
    return measurements


def warmup(spec: BenchSpec, key: Key) -> int:
    """Return the untimed iterations of a size: as requested, else fewer for larger sizes."""
    if spec.warmup is not None:
        return spec.warmup
    size = spec.series[key[0]].sizes_bytes[key[1]]
    return next((count for most, count in WARMUPS if size <= most), 1)


def share_of(total: int, launch: int, launches: int) -> int:
    """Return this launch's share of all iterations; the first launches may have one more."""
    each, more = divmod(total, launches)
    return each + (launch <= more)


def fixed_launches(spec: BenchSpec) -> int | None:
    """Return the number of timed launches, at most one per iteration; None if it is open."""
    if spec.iters is None:
        return spec.launches
    return min(spec.launches or LAUNCHES_OF_FIXED, spec.iters)


def iterations_in(seconds: float, pace_s: float) -> int:
    """Return the number of iterations in this time, at these seconds per iteration."""
    if pace_s <= 0:
        return FEWEST_ITERS
    fewest = max(FEWEST_ITERS, min(ENOUGH_ITERS, int(QUICK_S / pace_s)))
    return min(MOST_ITERS, max(fewest, int(seconds / pace_s)))
