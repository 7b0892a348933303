"""What the ranks of one launch do: which sizes they visit, and how often each is timed.

A plan is plain numbers beside the measurement's spec, so that it can be told to the other sites of
a world that an engine started. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from distdemo.bench.old_records import BenchSpec, SeriesSpec

TRIAL = 3  # iterations of each size in the launch that verifies; from them the rest is planned
FEW, MANY = 3, 500  # timed iterations of a size in a launch
USUAL_LAUNCHES = 8  # among which a series' budget is shared out at first
SPREAD_OVER = 6  # launches over which a fixed number of iterations is spread
WARM = ((1 << 16, 10), (1 << 20, 5), (1 << 24, 2))  # bytes up to which so many iterations warm up
WARM_LARGE = 1


@dataclass(frozen=True, slots=True)
class Visit:
    """One size of one series in one launch.

    Attributes:
        series: its place in the spec.
        point: the size's place in the series.
        launch: that its times count for.
        iterations: timed; 0: as many as fit into ``seconds``, which the ranks find out.
        warmup: not timed, before.
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


Key = tuple[int, int]
"""A series and a point of it, by their places."""


def keys(spec: BenchSpec, backend: str) -> list[Key]:
    """Every size of every series of this backend."""
    return [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.points))
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


def at_once(spec: BenchSpec, backend: str) -> Plan:
    """All in one world, for those where no second can follow: blocks stand for launches."""
    begin, launches = first(spec, backend), fixed_launches(spec) or USUAL_LAUNCHES
    visits, mine = list(begin.visits), keys(spec, backend)
    piece = budget(spec, backend) / (launches * max(1, len(mine)))
    for launch in range(1, launches + 1):
        order = mine if launch % 2 else mine[::-1]
        for key in order:
            count = 0 if spec.iters is None else share(spec.iters, launch, launches)
            visits.append(Visit(*key, launch, count, warmup(spec, key), seconds=piece))
    timed = [each for each in visits if each.iterations or spec.iters is None]
    return Plan(tuple(timed), begin.limits, begin.harness)


def budget(spec: BenchSpec, backend: str) -> float:
    """Seconds for timing all series of this backend."""
    mine = [series for series in spec.series if series.backend == backend and series.points]
    return spec.budget * len(mine)


def warmup(spec: BenchSpec, key: Key) -> int:
    """As asked for; else the fewer, the larger."""
    if spec.warmup is not None:
        return spec.warmup
    size = spec.series[key[0]].points[key[1]].size
    return next((count for most, count in WARM if size <= most), WARM_LARGE)


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


def name(series: SeriesSpec, point: int) -> str:
    """What a visit is called among the phases of a rank: ``all-reduce single of 65,536 B``."""
    form = "" if series.form == "tensor" else f" {series.form}"
    place = " in place" if series.in_place and series.both else ""
    size = series.points[point].size
    return f"{series.command}{form}{place}" + (f" of {size:,} B" if size else "")


Order = list[Any]
"""A plan as plain lists and numbers."""


def order_of(plan: Plan) -> Order:
    """The plan in a form that can be told to other processes."""
    visits = [list(astuple(visit)) for visit in plan.visits]
    return [visits, plan.limits, plan.harness]


def plan_of(order: Order) -> Plan:
    """The plan that ``order_of`` wrote."""
    visits, limits, harness = order
    return Plan(tuple(Visit(*each) for each in visits), limits, harness)
