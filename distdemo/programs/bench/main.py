"""bench on every rank: the visits of a launch, one after the other, each told when it is done.

What a rank tells is its own part; the launcher puts the ranks' parts together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo import ops
from distdemo.measuring import BenchSpec
from distdemo.ops.parts import handles
from distdemo.programs.bench import payload
from distdemo.programs.bench.align import Aligner, aligner
from distdemo.programs.bench.limits import measure_limits
from distdemo.programs.bench.loop import Times, harness, timed
from distdemo.programs.bench.overlap import overlap
from distdemo.programs.bench.plan import Plan, Visit, name
from distdemo.programs.bench.samples import Grounds, Sample
from distdemo.programs.part import Groups, Part, inference, part_of
from distdemo.yardsticks import Overlap

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.launchers.rank import Rank
    from distdemo.model import OpSpec
    from distdemo.ops.parts import Buffers

MEETINGS = 300  # with which the cost of a common start is found
SILENT = 2.0  # seconds of iterations, as far as can be told before, without a word


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
    groups = Groups(rank.backend)
    for visit in plan.visits:
        series = spec.series[visit.series]
        rank.reach(name(series, visit.point))
        rank.tell(_Stop(rank, spec, visit, start, groups).measure())
    rank.reach("done")
    start.meet()


def _grounds(rank: Rank, plan: Plan, start: Aligner) -> Grounds:
    """Collective: what is measured before any op."""
    found = measure_limits(rank) if plan.limits else ()
    rank.reach("measured the machine")
    began = perf_counter()
    for _ in range(MEETINGS):
        start.meet()
    meeting = (perf_counter() - began) / MEETINGS
    return Grounds(
        start.way,
        meeting,
        harness() if plan.harness else None,
        found if rank.rank == 0 else (),
    )


class _Stop:
    """One visit."""

    def __init__(
        self, rank: Rank, spec: BenchSpec, visit: Visit, start: Aligner, groups: Groups
    ) -> None:
        self._rank = rank
        self._spec = spec
        self._visit = visit
        self._meet = start.meet
        sized = spec.series[visit.series].points[visit.point].specs
        self._part: Part = part_of(rank.rank, ops.REGISTRY[sized[0].op], sized, str(visit))
        self._group: ProcessGroup | None = groups.of(sized, self._part)
        self._checked = self._wrong = self._fills = 0

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
        began = perf_counter()
        for _ in range(self._visit.warmup):
            self._meet()
            call()
        self._rank.synchronize()
        pace = (perf_counter() - began) / max(1, self._visit.warmup)
        times = self._timed(buffers, call, pace)
        return Sample(
            self._visit,
            times.arrived.tobytes(),
            times.started.tobytes(),
            times.took.tobytes(),
            times.clock,
            self._checked,
            self._wrong,
            self._overlap(buffers, times) if self._spec.overlap else None,
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

    def _timed(self, buffers: Buffers, call: Callable[[], object], pace: float) -> Times:
        """Collective: all iterations, verified in between if that was asked for.

        Args:
            buffers: that the call works on.
            call: what is timed.
            pace: seconds of an iteration, as far as is known.
        """
        left, every = self._visit.iterations, self._spec.check_every
        whole = Times(array("d"), array("d"), array("d"))
        while left:
            count = min(left, every or left)
            whole = _joined(whole, self._told(call, count, pace))
            left -= count
            if every and self._visit.launch:
                payload.refill(self._part.op, self._part.rank, self._fresh(), buffers)
                self._verify(buffers, call)
        return whole

    def _told(self, call: Callable[[], object], count: int, pace: float) -> Times:
        """Collective: so many iterations; the launcher is told now and then that they go on."""
        if not self._visit.warmup and count > 1:  # only now it can be told how long one takes
            first = timed(self._rank, call, 1, self._meet)
            return _joined(first, self._in_pieces(call, count - 1, first.took[0]))
        return self._in_pieces(call, count, pace)

    def _in_pieces(self, call: Callable[[], object], count: int, pace: float) -> Times:
        at_once = count if pace * count < SILENT else max(1, int(SILENT / pace))
        whole = timed(self._rank, call, min(at_once, count), self._meet)
        for done in range(at_once, count, at_once):
            self._rank.tell(None)
            part = timed(self._rank, call, min(at_once, count - done), self._meet)
            whole = _joined(whole, part)
        return whole

    def _overlap(self, buffers: Buffers, times: Times) -> Overlap | None:
        """Collective: what computing hides of the call; None where there is nothing to wait for."""
        op, spec = self._part.op, self._part.spec
        if not spec.async_op:
            return None
        begin = op.bind(buffers, spec, self._group, async_op=True)
        return overlap(self._rank, begin, times.took, self._meet)


def _joined(one: Times, other: Times) -> Times:
    return Times(
        one.arrived + other.arrived,
        one.started + other.started,
        one.took + other.took,
        other.clock,
    )
