"""bench on every rank: the visits of a launch, one after the other, each told when it is done.

What a rank tells is its own part; the launcher puts the ranks' parts together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo import ops
from distdemo.bench import payload
from distdemo.bench.align import Aligner, aligner
from distdemo.bench.gauges import Watchman
from distdemo.bench.limits import measure_limits
from distdemo.bench.loop import Times, harness, timed
from distdemo.bench.old_records import BenchSpec
from distdemo.bench.overlap import overlap
from distdemo.bench.plan import Key, Plan, Visit, count_for, name
from distdemo.bench.samples import Grounds, Sample
from distdemo.bench.yardsticks import Overlap
from distdemo.demo.part import Groups, Part, inference, part_of
from distdemo.ops.contract import handles

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Buffers
    from distdemo.ops.spec import OpSpec

MEETINGS = 100  # with which the cost of a common start is found


def bench(rank: Rank, spec: BenchSpec, plan: Plan) -> None:
    """Collective: carry out the plan, and tell what came of each visit.

    Args:
        rank: this rank of the world.
        spec: what is measured.
        plan: of this launch.
    """
    start = aligner(rank)
    rank.reach("ready")
    rank.tell(_grounds(rank, plan, start))
    tour = _Tour(rank, spec, start, Groups(rank.backend))
    watchman = Watchman(rank, start, plan.visits)
    for place, visit in enumerate(plan.visits):
        rank.reach(name(spec.series[visit.series], visit.point))
        watchman.before(place)
        rank.tell(_Stop(tour, visit).measure())
        watchman.after(place)
    rank.reach("done")
    start.meet()


def _grounds(rank: Rank, plan: Plan, start: Aligner) -> Grounds:
    """Collective: what is measured before any op."""
    found = measure_limits(rank) if plan.limits else ()
    rank.reach("measured the machine")
    if not plan.harness:
        return Grounds(start.way)
    began = perf_counter()
    for _ in range(MEETINGS):
        start.meet()
    meeting = (perf_counter() - began) / MEETINGS
    return Grounds(start.way, meeting, harness(), found if rank.rank == 0 else ())


@dataclass(slots=True)
class _Tour:
    """What all visits of a launch have in common.

    Attributes:
        start: brings the ranks to a common start.
        paces: seconds of an iteration, as the last visit of each size found it.
    """

    rank: Rank
    spec: BenchSpec
    start: Aligner
    groups: Groups
    paces: dict[Key, float] = field(default_factory=dict)

    def count(self, visit: Visit) -> int:
        """Collective: how many iterations are timed; rank 0 decides where the plan does not."""
        if visit.iterations:
            return visit.iterations
        store, place = self.rank.store("counts"), str(visit)
        if self.rank.rank == 0:
            pace = self.paces.get((visit.series, visit.point), 0.0)
            store.set(place, str(count_for(pace, visit.seconds)))
        return int(store.get(place))


class _Stop:
    """One visit."""

    def __init__(self, tour: _Tour, visit: Visit) -> None:
        self._tour = tour
        self._rank = tour.rank
        self._spec = tour.spec
        self._visit = visit
        self._meet = tour.start.meet
        sized = tour.spec.series[visit.series].points[visit.point].specs
        place = f"visit {visit.launch} {visit.series} {visit.point}"
        self._part: Part = part_of(self._rank.rank, ops.REGISTRY[sized[0].op], sized, place)
        self._group: ProcessGroup | None = tour.groups.of(sized, self._part)
        self._waits = sized[0].async_op  # also where this rank has no part in it
        self._on_host = ops.REGISTRY[sized[0].op].meets
        self._fills = visit.launch * 1000  # no launch verifies what another has
        self._checked = self._wrong = 0

    def measure(self) -> Sample:
        """Collective: verify if that is due, warm up, time."""
        with inference(self._part.spec):
            return self._measured()

    def _measured(self) -> Sample:
        make = payload.make if self._verifies() else payload.plain
        buffers = make(self._part.op, self._part.rank, self._fresh(), self._rank.device)
        call = self._bound(buffers)
        if self._visit.verify:
            self._verify(buffers, call)
        for _ in range(self._visit.warmup):
            self._meet()
            call()
        times = self._timed(buffers, call)
        self._tour.paces[self._visit.series, self._visit.point] = times.pace
        return Sample(
            self._visit,
            times.arrived.tobytes(),
            times.started.tobytes(),
            times.took.tobytes(),
            times.clock,
            self._checked,
            self._wrong,
            self._overlap(buffers, times) if self._spec.overlap and self._waits else None,
        )

    def _verifies(self) -> bool:
        """Whether anything is compared, for which the data has to tell ranks and places apart."""
        return self._visit.verify or bool(self._spec.check_every)

    def _fresh(self) -> OpSpec:
        """The spec with values that this visit's buffers have not held before."""
        return replace(self._part.spec, seed=self._fills)

    def _bound(self, buffers: Buffers) -> Callable[[], object]:
        """The call on these buffers that returns when the operation is done."""
        op, spec = self._part.op, self._part.spec
        call = op.bind(buffers, spec, self._group, async_op=spec.async_op)
        if not spec.async_op:
            return call

        def completed() -> None:
            for work in handles(call()):
                work.wait()

        return completed

    def _verify(self, buffers: Buffers, call: Callable[[], object]) -> None:
        """Collective: one call on the fresh data that the buffers hold, and compare."""
        self._meet()
        call()
        self._rank.synchronize()
        if self._part.group is not None:  # else it has no part in any group
            part = self._part
            checked, wrong = payload.check(part.op, part.rank, self._fresh(), buffers)
            self._checked += checked
            self._wrong += wrong
        self._fills += 1

    def _timed(self, buffers: Buffers, call: Callable[[], object]) -> Times:
        """Collective: all iterations, verified in between if that was asked for."""
        left, every = self._tour.count(self._visit), self._spec.check_every
        whole = Times(array("d"), array("d"), array("d"))
        while left:
            count = min(left, every or left)
            times = timed(self._rank, call, count, self._meet, on_host=self._on_host)
            whole = _joined(whole, times)
            left -= count
            if every and self._visit.launch:
                payload.refill(self._part.op, self._part.rank, self._fresh(), buffers)
                self._verify(buffers, call)
        return whole

    def _overlap(self, buffers: Buffers, times: Times) -> Overlap | None:
        """Collective: what computing hides of the call; None where this rank has no part in it."""
        op, spec, inside = self._part.op, self._part.spec, self._part.group is not None
        begin = op.bind(buffers, spec, self._group, async_op=inside)
        found = overlap(self._rank, begin, times.took, self._meet)
        return found if inside else None


def _joined(one: Times, other: Times) -> Times:
    return Times(
        one.arrived + other.arrived,
        one.started + other.started,
        one.took + other.took,
        other.clock,
    )
