"""Which sizes are measured, and what the ranks of each launch do about them. No torch.

Sizes are bytes S, what algbw counts. The first launch of a backend verifies every size and finds
out how long things take; the others time. A plan is plain numbers beside the spec, so that it can
be told to the other nodes of a world that an engine started.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdemo.bench.records import BenchSpec
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

MOST_SIZES = 200
"""The most of one series."""
TRIAL = 3  # iterations of each size in the launch that verifies; from them the rest is planned
FEW, MANY = 3, 500  # timed iterations of a size in a launch
USUAL_LAUNCHES = 8  # among which a series' budget is shared out at first
SPREAD_OVER = 6  # launches over which a fixed number of iterations is spread
WARMUPS = ((1 << 16, 10), (1 << 20, 5), (1 << 24, 2))  # iterations up to this size; else 1

# ------------------------------------------------------------------------------------------ sizes


def sweep(first: int, last: int, factor: float) -> list[int]:
    """Return the sizes from a smallest to a largest one in bytes, each a factor times the last.

    Raises:
        UsageError: There are none, or too many.
    """
    found: list[int] = []
    size = first
    while 1 < factor < math.inf and 0 < size <= last and len(found) <= MOST_SIZES:
        found.append(size)
        power = first * factor ** len(found) * (1 + 1e-12)  # it may come out a little too small
        size = int(min(power, last + 1))
    if not 0 < len(found) <= MOST_SIZES:
        raise UsageError(
            f"From -b {size_text(first)} to -e {size_text(last)} there is no size, or there are "
            f"more than {MOST_SIZES}.",
            "Each is -f times the one before, and -f is more than 1.",
            "Try -b 8 -e 64M -f 4.",
        )
    return found


def sizes_of(op: Op, template: OpSpec, sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes at which this op is measured: whole parts of whole elements, one of each at least.

    Args:
        op: what is measured.
        template: the smallest call that moves anything.
        sizes: that were asked for.
    """
    if op.meets:
        return (0,)
    part = op.traffic(template).payload_bytes
    return tuple(sorted({max(part, size // part * part) for size in sizes}))


def size_text(size: int) -> str:
    """Bytes as they are typed: ``64K`` where that is exact, else the number."""
    for power, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if size and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


# --------------------------------------------------------------------------------------- launches

Key = tuple[int, int]
"""A series and a size of it, by their places."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One size of one series in one launch.

    Attributes:
        series: its place in the spec.
        point: the size's place in the series.
        launch: that its times count for; 0 is the one that calibrates and verifies.
        iterations: timed; 0: as many as fit into ``seconds``, which the ranks find out.
        warmup: iterations before, not timed.
        seconds: that the timed iterations may take.
    """

    series: int
    point: int
    launch: int
    iterations: int
    warmup: int
    seconds: float = 0.0


Visits = tuple[Visit, ...]
"""All that the ranks of one world do, in order."""


def keys(spec: BenchSpec, backend: str) -> list[Key]:
    """Every size of every series of this backend."""
    return [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]


def first(spec: BenchSpec, backend: str) -> Visits:
    """The launch that verifies every size, and times it so often that the rest can be planned."""
    return tuple(Visit(*key, 0, TRIAL, warmup(spec, key)) for key in keys(spec, backend))


def later(spec: BenchSpec, launch: int, counts: dict[Key, int]) -> Visits:
    """A launch that times; every other one visits the sizes in the opposite order.

    Args:
        spec: what is measured.
        launch: counted from 1.
        counts: iterations of each size that is still to be timed.
    """
    order = sorted(counts, reverse=launch % 2 == 0)
    return tuple(Visit(*key, launch, counts[key], warmup(spec, key)) for key in order)


def in_one_world(spec: BenchSpec, backend: str) -> Visits:
    """All in one world, where no second one can follow: blocks stand for launches."""
    visits, mine = first(spec, backend), keys(spec, backend)
    launches = fixed_launches(spec) or USUAL_LAUNCHES
    piece = budget_s(spec, backend) / (launches * max(1, len(mine)))
    for launch in range(1, launches + 1):
        count = 0 if spec.iters is None else share(spec.iters, launch, launches)
        block = later(spec, launch, dict.fromkeys(mine, count))
        visits += tuple(replace(visit, seconds=piece) for visit in block)
    return visits


def budget_s(spec: BenchSpec, backend: str) -> float:
    """Seconds for timing all series of this backend."""
    return spec.budget_s * sum(
        series.backend == backend and bool(series.sizes_bytes) for series in spec.series
    )


def warmup(spec: BenchSpec, key: Key) -> int:
    """As asked for; else the fewer, the larger."""
    if spec.warmup is not None:
        return spec.warmup
    size = spec.series[key[0]].sizes_bytes[key[1]]
    return next((count for most, count in WARMUPS if size <= most), 1)


def share(total: int, launch: int, launches: int) -> int:
    """This launch's part of all iterations; the first launches have one more."""
    each, more = divmod(total, launches)
    return each + (launch <= more)


def fixed_launches(spec: BenchSpec) -> int | None:
    """How many launches that time, if that is settled beforehand; no more than iterations."""
    if spec.iters is None:
        return spec.launches
    return min(spec.launches or SPREAD_OVER, spec.iters)


def count_for(seconds: float, piece: float) -> int:
    """How many iterations, each of these seconds, fit into a piece of time."""
    return min(MANY, max(FEW, int(piece / seconds))) if seconds > 0 else FEW
