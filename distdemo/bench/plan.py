"""Which sizes are measured, and what the ranks of each launch do about them. No torch.

Sizes are bytes S, what algbw counts. An op moves whole elements, and where S is that of n parts,
n of them at least: sizes are cut down to whole parts, the first is rounded up.

The first launch of a backend verifies every size and finds out how long things take; the others
time. A plan is plain numbers beside the spec, so that it can be told to the other nodes of a world
that an engine started.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdemo.bench.records import BenchSpec
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

MOST_SIZES = 200
"""Of one series: nobody reads more."""
TRIAL = 3  # iterations of each size in the launch that verifies; from them the rest is planned
FEW, MANY = 3, 500  # timed iterations of a size in a launch
USUAL_LAUNCHES = 8  # among which a series' budget is shared out at first
SPREAD_OVER = 6  # launches over which a fixed number of iterations is spread
WARMUPS = ((1 << 16, 10), (1 << 20, 5), (1 << 24, 2))  # bytes up to which so many warm up; else 1

# ------------------------------------------------------------------------------------------ sizes


@dataclass(frozen=True, slots=True)
class SizeRange:
    """From a smallest to a largest size, by a factor or by a step; bytes.

    Attributes:
        step: from one size to the next; None: by the factor.
    """

    first: int
    last: int
    factor: float = 4.0
    step: int | None = None

    def __str__(self) -> str:
        """As it is typed, but for the factor."""
        return f"-b {size_text(self.first)} -e {size_text(self.last)}"

    def check(self, dtype: str) -> None:
        """Refuse a range that holds no size, too many, or elements cut in two.

        Raises:
            UsageError: naming the flag and what to try.
        """
        itemsize = DTYPES[dtype].itemsize
        for flag, size in (("-b", self.first), ("-e", self.last), ("-i", self.step)):
            if size is not None and (size <= 0 or size % itemsize):
                near = max(itemsize, size // itemsize * itemsize)
                raise UsageError(
                    f"{flag} {size_text(size)} is no whole number of {dtype} elements.",
                    f"One element is {itemsize} byte{'s' * (itemsize > 1)}.",
                    f"Try {flag} {size_text(near)}.",
                )
        if self.step is None and not 1 < self.factor < math.inf:
            raise UsageError(
                f"-f {self.factor:g}: the sizes would not grow.",
                "Each size is this many times the one before.",
                "Try -f 2 or -f 4.",
            )
        if self.first > self.last:
            raise UsageError(
                f"{self}: there is no size between them.",
                "-b is the smallest size, -e the largest.",
                f"Try -b {size_text(self.last)} -e {size_text(self.first)}.",
            )
        count = len(self.sizes(MOST_SIZES + 1))
        if count > MOST_SIZES:
            flag = "-f" if self.step is None else "-i"
            raise UsageError(
                f"{self} with this {flag} would be more than {MOST_SIZES} sizes.",
                "Each is measured and shown.",
                f"Try a larger {flag}.",
            )

    def sizes(self, most: int = MOST_SIZES) -> list[int]:
        """Ascending, so many at most; the last may not be met."""
        found: list[int] = []
        for number in range(most):
            size = (
                int(self.first * self.factor**number * (1 + 1e-12))
                if self.step is None
                else self.first + number * self.step
            )
            if size > self.last:
                break
            found.append(size)
        return found


def sizes_of(op: Op, template: OpSpec, sizes: Sequence[int], last: int) -> tuple[int, ...]:
    """The sizes at which this op can be measured: cut down to whole parts, none twice.

    Args:
        op: what is measured.
        template: the smallest call that moves anything.
        sizes: that were asked for, ascending.
        last: an upper bound.

    Raises:
        UsageError: no multiple of its parts lies there.
    """
    if op.meets:
        return (0,)
    part = op.traffic(template).payload_bytes
    first = -(-sizes[0] // part) * part
    found = sorted({max(first, size // part * part) for size in sizes})
    found = [size for size in found if size <= last]
    if not found:
        low, high = last // part * part, -(-last // part) * part
        raise UsageError(
            f"There is no size of {op.command} on {template.group_size} ranks from "
            f"{size_text(sizes[0])} to {size_text(last)} bytes.",
            f"It moves {template.group_size} parts of whole elements of {template.dtype}: a "
            f"multiple of {part} bytes.",
            f"Try -b {size_text(low)}." if low else f"Try -e {size_text(high)}.",
        )
    return tuple(found)


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
        launch: that its times count for; 0 is the one that verifies.
        iterations: timed; 0: as many as fit into ``seconds``, which the ranks find out.
        warmup: iterations before, not timed.
        verify: on fresh data, before.
        seconds: that the timed iterations may take.
    """

    series: int
    point: int
    launch: int
    iterations: int
    warmup: int
    verify: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the ranks of one world do.

    Attributes:
        visits: in order.
        limits: measure first what the machine does without torch.distributed.
        harness: measure first what the loop itself costs.
    """

    visits: tuple[Visit, ...]
    limits: bool = False
    harness: bool = False


def keys(spec: BenchSpec, backend: str) -> list[Key]:
    """Every size of every series of this backend."""
    return [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]


def first(spec: BenchSpec, backend: str) -> Plan:
    """The launch that verifies every size, and times it so often that the rest can be planned."""
    visits = [Visit(*key, 0, TRIAL, warmup(spec, key), verify=True) for key in keys(spec, backend)]
    return Plan(tuple(visits), limits=spec.limits, harness=True)


def later(spec: BenchSpec, launch: int, counts: dict[Key, int]) -> Plan:
    """A launch that times; every other one visits the sizes in the opposite order.

    Args:
        spec: what is measured.
        launch: counted from 1.
        counts: iterations of each size that is still to be timed.
    """
    order = sorted(counts, reverse=launch % 2 == 0)
    visits = [Visit(*key, launch, counts[key], warmup(spec, key)) for key in order if counts[key]]
    return Plan(tuple(visits))


def in_one_world(spec: BenchSpec, backend: str) -> Plan:
    """All in one world, where no second one can follow: blocks stand for launches."""
    begin, launches = first(spec, backend), fixed_launches(spec) or USUAL_LAUNCHES
    visits, mine = list(begin.visits), keys(spec, backend)
    piece = budget_s(spec, backend) / (launches * max(1, len(mine)))
    for launch in range(1, launches + 1):
        for key in mine if launch % 2 else mine[::-1]:
            count = 0 if spec.iters is None else share(spec.iters, launch, launches)
            if count or spec.iters is None:
                visits.append(Visit(*key, launch, count, warmup(spec, key), seconds=piece))
    return replace(begin, visits=tuple(visits))


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
    """This launch's part of so many iterations; the first ones have one more. They add up."""
    each, more = divmod(total, launches)
    return each + (launch <= more)


def fixed_launches(spec: BenchSpec) -> int | None:
    """How many launches that time, if that is settled beforehand."""
    if spec.launches is not None:
        return spec.launches
    return None if spec.iters is None else min(SPREAD_OVER, spec.iters)


def count_for(seconds: float, piece: float) -> int:
    """How many iterations of so many seconds fit into a piece of time."""
    return min(MANY, max(FEW, int(piece / seconds))) if seconds > 0 else FEW
