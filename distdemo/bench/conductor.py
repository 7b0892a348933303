"""The launcher's side of ``bench``: world after world, until every median is steady or time is up.

The first world of each backend verifies every size and finds out how long things take; the others
time. What comes in is put together as it comes, so whatever ends the measurement (a rank that
dies, Ctrl-C) leaves what was measured by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from distdemo.bench import plan
from distdemo.bench.account import Account
from distdemo.bench.main import bench
from distdemo.bench.old_records import FEWEST_LAUNCHES, BenchReport, BenchSpec, Course
from distdemo.bench.plan import USUAL_LAUNCHES, Key, Plan
from distdemo.bench.samples import Grounds, Looks, Sample
from distdemo.check.checker import Start
from distdemo.errors import DistdemoError, Terminated
from distdemo.launcher.records import WorldSpec

Watch = Callable[[BenchReport, Course], object]
MOST_LAUNCHES = 40  # of one backend
LOOK = 0.25  # seconds between two reports to whoever watches


def measure(
    spec: BenchSpec, start: Start, watch: Watch | None = None, *, once: bool = False
) -> BenchReport:
    """Measure all series, one backend after the other.

    Args:
        spec: what to measure.
        start: starts a world.
        watch: called as results come, now and then, with all that is known; None: nobody does,
            which leaves the cores to the ranks.
        once: only one world can be started.

    Raises:
        DistdemoError: no world can be started, and nothing was measured yet.
    """
    run = _Run(spec, start, watch, Account(spec, once))
    try:
        run.all()
    except (KeyboardInterrupt, Terminated):
        run.account.interrupted = True
    return run.account.report(whole=True)


def order_of(args: tuple[Any, ...]) -> plan.Order:
    """What tells other sites of a joined world to run the same launch."""
    return plan.order_of(args[1])


def resume(spec: BenchSpec, order: plan.Order) -> tuple[Any, tuple[Any, ...]]:
    """The program of the next launch and its arguments, from what ``order_of`` gave."""
    return bench, (spec, plan.plan_of(order))


@dataclass(slots=True)
class _Run:
    """The worlds of a measurement.

    Attributes:
        account: what came of them.
    """

    spec: BenchSpec
    start: Start
    watch: Watch | None
    account: Account
    _backend: str = ""
    _now: str = "starting"
    _timing_since: float | None = None
    _told: float = field(default_factory=monotonic)

    def all(self) -> None:
        """Every backend, in the order in which they were named; one that fails stops no other."""
        for backend in self._backends():
            self._backend, self._timing_since = backend, None
            try:
                self._one_backend(next(s.world for s in self.spec.series if s.backend == backend))
            except DistdemoError as error:
                if not any(series.rows for series in self.account.report().series):
                    raise
                self.account.note_error(backend, error)

    def _backends(self) -> list[str]:
        return list(dict.fromkeys(s.backend for s in self.spec.series if s.points))

    # ----------------------------------------------------------------------------- one backend

    def _one_backend(self, world: WorldSpec) -> None:
        self.account.begin(world)
        if self.account.once:
            self._launch(world, plan.at_once(self.spec, world.backend))
            return
        if not self._launch(world, plan.first(self.spec, world.backend)):
            return
        self._timing_since = monotonic()
        for launch in range(1, (plan.fixed_launches(self.spec) or MOST_LAUNCHES) + 1):
            counts = self._counts(launch)
            if not counts or not self._launch(world, plan.later(self.spec, launch, counts)):
                return

    def _launch(self, world: WorldSpec, what: Plan) -> bool:
        """Run one world; whether all its ranks did what they should."""
        self._now = "starting a world"
        self._tell()
        report = self.start(world, bench, (self.spec, what), hear=self._hear)
        self.account.note_world(world, report)
        return report.ok

    def _counts(self, launch: int) -> dict[Key, int]:
        """Iterations of each size in this launch; empty: enough is known."""
        fixed = plan.fixed_launches(self.spec)
        mine = plan.keys(self.spec, self._backend)
        if self.spec.iters is not None and fixed is not None:
            return {key: plan.share(self.spec.iters, launch, fixed) for key in mine}
        if fixed is None and launch > FEWEST_LAUNCHES:
            if self._spent() >= self._budget() * (1 - 0.5 / launch):
                return {}
            mine = [key for key in mine if not self._steady(key)]
        if not mine:
            return {}
        piece = self._left_for_a_launch(launch) / len(plan.keys(self.spec, self._backend))
        pace = self.account.harvest.pace
        return {key: plan.count_for(pace(key), piece) for key in mine}

    def _left_for_a_launch(self, launch: int) -> float:
        """Seconds: what is left of the budget among the launches that there will usually be."""
        wanted = plan.fixed_launches(self.spec) or USUAL_LAUNCHES
        left = max(self._budget() - self._spent(), self._budget() / 4)
        return left / max(1, wanted - launch + 1)

    def _steady(self, key: Key) -> bool:
        made = self.account.harvest.row(key)
        return made is not None and made.steady

    def _budget(self) -> float:
        return plan.budget(self.spec, self._backend)

    def _spent(self) -> float:
        return 0.0 if self._timing_since is None else monotonic() - self._timing_since

    # --------------------------------------------------------------------------------- hearing

    def _hear(self, rank: int, told: Grounds | Looks | Sample | None) -> None:
        """None: the rank still moves."""
        if isinstance(told, Grounds) and rank == 0:
            self.account.note_grounds(self._backend, told)
        if isinstance(told, Looks):
            self.account.note_looks(self._backend, rank, told)
        if isinstance(told, Sample) and self.account.note_sample(self._backend, rank, told):
            visit = told.visit
            self._now = plan.name(self.spec.series[visit.series], visit.point)
        self._tell()

    def _tell(self) -> None:
        if self.watch is None or monotonic() - self._told < LOOK:
            return
        self.watch(self.account.report(), self._course())
        self._told = monotonic()

    def _course(self) -> Course:
        """By the budget, or by the launches that are left."""
        order = self._backends()
        place = order.index(self._backend)
        left = None
        if self._timing_since is not None and self.spec.iters is None:
            later = sum(plan.budget(self.spec, each) for each in order[place + 1 :])
            left = max(0.0, self._budget() - self._spent()) + later
        return Course((place + self._part_done()) / len(order), left, self._now)

    def _part_done(self) -> float:
        """The share of this backend's work."""
        launches = self.account.setups[self._backend].launches
        fixed = plan.fixed_launches(self.spec)
        if fixed is not None:
            return min(1.0, launches / (fixed + 1))
        return min(1.0, self._spent() / self._budget())
