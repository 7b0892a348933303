"""The launcher's side of ``bench``: world after world, until every median is steady or time is up.

The first world of each backend verifies every size and finds out how long things take; the others
time. What comes in is put together as it comes, so whatever ends the measurement (a rank that
dies, Ctrl-C) leaves what was measured by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from distdemo import backends
from distdemo.measuring import FEWEST_LAUNCHES, BenchReport, BenchSpec, Course, Series
from distdemo.model import WorldSpec
from distdemo.outcomes import WorldReport
from distdemo.programs.bench import plan
from distdemo.programs.bench.environment import cores, environment
from distdemo.programs.bench.harvest import Harvest
from distdemo.programs.bench.judge import judge
from distdemo.programs.bench.limits import bound_of
from distdemo.programs.bench.main import bench
from distdemo.programs.bench.plan import (
    USUAL_LAUNCHES,
    Key,
    Plan,
    at_once,
    count_for,
    first,
    fixed_launches,
    keys,
    later,
    name,
    share,
)
from distdemo.programs.bench.samples import Grounds, Sample
from distdemo.programs.bench.summary import median, quantile
from distdemo.programs.checker import Start
from distdemo.versions import versions
from distdemo.yardsticks import Alignment, Setup

Watch = Callable[[BenchReport, Course], object]
MOST_LAUNCHES = 40  # of one backend
LOOK = 0.1  # seconds between two reports to whoever watches


def measure(
    spec: BenchSpec, start: Start, watch: Watch | None = None, *, once: bool = False
) -> BenchReport:
    """Measure all series, one backend after the other.

    Args:
        spec: what to measure.
        start: starts a world.
        watch: called as results come, some ten times a second, with all that is known.
        once: only one world can be started.
    """
    run = _Run(spec, start, watch, once=once)
    try:
        run.all()
    except KeyboardInterrupt:
        run.interrupted = True
    return run.report(whole=True)


def order_of(args: tuple[Any, ...]) -> plan.Order:
    """What tells other sites of a joined world to run the same launch."""
    return plan.order_of(args[1])


def resume(spec: BenchSpec, order: plan.Order) -> tuple[Any, tuple[Any, ...]]:
    """The program of the next launch and its arguments, from what ``order_of`` gave."""
    return bench, (spec, plan.plan_of(order))


@dataclass(slots=True)
class _Run:
    spec: BenchSpec
    start: Start
    watch: Watch | None
    once: bool
    interrupted: bool = False
    failure: WorldReport | None = None
    setups: dict[str, Setup] = field(default_factory=dict)
    began: float = field(default_factory=monotonic)
    _harvest: Harvest = field(init=False)
    _now: str = "starting"
    _backend: str = ""
    _timing_since: float | None = None
    _told: float = 0.0

    def __post_init__(self) -> None:
        self._harvest = Harvest(self.spec)

    def all(self) -> None:
        """Every backend, in the order in which they were named."""
        names = dict.fromkeys(series.backend for series in self.spec.series if series.points)
        for backend in names:
            self._one_backend(backend)
            if self.failure is not None:
                return

    # ----------------------------------------------------------------------------- one backend

    def _one_backend(self, backend: str) -> None:
        world = next(s.world for s in self.spec.series if s.backend == backend)
        share = cores()
        self.setups[backend] = Setup(world, cores=share.effective)
        self._backend, self._timing_since = backend, None
        if self.once:
            self._launch(world, at_once(self.spec, backend))
            return
        if not self._launch(world, first(self.spec, backend)):
            return
        self._timing_since = monotonic()
        for launch in range(1, (fixed_launches(self.spec) or MOST_LAUNCHES) + 1):
            counts = self._counts(launch)
            if not counts or not self._launch(world, later(self.spec, launch, counts)):
                return

    def _launch(self, world: WorldSpec, what: Plan) -> bool:
        """Run one world; whether all its ranks did what they should."""
        self._now = "starting a world"
        self._tell()
        report = self.start(world, bench, (self.spec, what), hear=self._hear)
        before = self.setups[world.backend]
        self.setups[world.backend] = replace(
            before,
            launches=before.launches + 1,
            start_method=report.start_method,
            engine=report.engine,
            hosts=report.hosts,
            ranks_per_host=_most(report.hosts) if report.hosts else world.world_size,
        )
        if not report.ok:
            self.failure = report
        return report.ok

    def _counts(self, launch: int) -> dict[Key, int]:
        """Iterations of each size in this launch; empty: enough is known."""
        fixed = fixed_launches(self.spec)
        mine = keys(self.spec, self._backend)
        if self.spec.iters is not None and fixed is not None:
            return {key: share(self.spec.iters, launch, fixed) for key in mine}
        if fixed is None and launch > FEWEST_LAUNCHES:
            if self._spent() >= self._budget() * (1 - 0.5 / launch):
                return {}
            mine = [key for key in mine if not self._steady(key)]
        if not mine:
            return {}
        piece = self._left_for_a_launch(launch) / len(keys(self.spec, self._backend))
        return {key: count_for(self._harvest.pace(key), piece) for key in mine}

    def _left_for_a_launch(self, launch: int) -> float:
        """Seconds: what is left of the budget among the launches that there will usually be."""
        wanted = fixed_launches(self.spec) or USUAL_LAUNCHES
        left = max(self._budget() - self._spent(), self._budget() / 4)
        return left / max(1, wanted - launch + 1)

    def _steady(self, key: Key) -> bool:
        made = self._harvest.row(key)
        return made is not None and made.steady

    def _budget(self) -> float:
        return self._budget_of(self._backend)

    def _budget_of(self, backend: str) -> float:
        """Seconds for timing this backend's series."""
        mine = [s for s in self.spec.series if s.backend == backend and s.points]
        return self.spec.budget * len(mine)

    def _spent(self) -> float:
        return 0.0 if self._timing_since is None else monotonic() - self._timing_since

    # --------------------------------------------------------------------------------- hearing

    def _hear(self, rank: int, told: Grounds | Sample | None) -> None:
        if told is None:  # it still moves
            self._tell()
            return
        if isinstance(told, Grounds):
            if rank == 0:
                self._ground(told)
            return
        way = self.setups[self._backend].alignment
        comparable = way is not None and way.way == "shared memory"
        if self._harvest.add(rank, told, comparable=comparable):
            visit = told.visit
            self._now = name(self.spec.series[visit.series], visit.point)
            self._tell()

    def _ground(self, told: Grounds) -> None:
        """What rank 0 found before the first visit; what only one launch measures stays."""
        before = self.setups[self._backend]
        transport = backends.REGISTRY[self._backend].transport
        limits = told.limits or before.limits
        self.setups[self._backend] = replace(
            before,
            alignment=before.alignment or Alignment(told.way, told.meeting),
            harness=before.harness or told.harness,
            limits=limits,
            bound=bound_of(limits, transport),
        )

    def _tell(self) -> None:
        if self.watch is None or monotonic() - self._told < LOOK:
            return
        self.watch(self.report(), self._course())
        self._told = monotonic()

    def _course(self) -> Course:
        """By the budget, or by the iterations that are left."""
        order = list(dict.fromkeys(s.backend for s in self.spec.series if s.points))
        place = order.index(self._backend) if self._backend in order else 0
        part = self._part_done()
        left = None
        if self._timing_since is not None and self.spec.iters is None:
            later = sum(map(self._budget_of, order[place + 1 :]))
            left = max(0.0, self._budget_of(self._backend) - self._spent()) + later
        return Course((place + part) / max(1, len(order)), left, self._now)

    def _part_done(self) -> float:
        """The share of this backend's work."""
        launches = self.setups[self._backend].launches if self._backend in self.setups else 0
        fixed = fixed_launches(self.spec)
        if fixed is not None:
            return min(1.0, launches / (fixed + 1))
        return min(1.0, self._spent() / self._budget()) if self._budget() else 0.0

    # -------------------------------------------------------------------------------- reporting

    def report(self, *, whole: bool = False) -> BenchReport:
        """All that is known by now.

        Args:
            whole: at the end; with what it takes a while to work out.
        """
        series = [self._series(number, whole=whole) for number in range(len(self.spec.series))]
        setups = {backend: self._setup(backend) for backend in self.setups}
        found: dict[str, str] = versions()
        for setup in setups.values():
            found |= backends.versions_of(setup.world) if whole else {}
        return BenchReport(
            self.spec,
            tuple(series),
            setups,
            self.failure,
            monotonic() - self.began,
            self.interrupted,
            environment(cores()) if whole else {},
            tuple(self._notes(setups)) if whole else (),
            found,
        )

    def _series(self, number: int, *, whole: bool) -> Series:
        """One of them, judged."""
        made = self._harvest.series(number, whole=whole)
        setup = self.setups.get(made.spec.backend)
        if setup is None or not whole:
            return replace(made, error=self._why_short(made)) if whole else made
        ranks = made.spec.points[0].specs[0].world_size if made.spec.points else 0
        rows = tuple(
            replace(row, judgement=judge(row, made.rows, setup, ranks)) for row in made.rows
        )
        return replace(made, rows=rows, error=self._why_short(made))

    def _why_short(self, made: Series) -> str:
        """Why sizes are missing; empty if none is."""
        missing = len(made.spec.points) - len(made.rows)
        if not missing:
            return ""
        why = "The measurement was interrupted" if self.interrupted else "A world failed"
        return f"{why} before {missing} of {len(made.spec.points)} sizes were measured."

    def _setup(self, backend: str) -> Setup:
        """With how far apart the ranks' starts were."""
        setup, starts = self.setups[backend], sorted(self._harvest.starts)
        if setup.alignment is None or not starts:
            return setup
        spread = replace(setup.alignment, spread=median(starts), spread_p99=quantile(starts, 0.99))
        return replace(setup, alignment=spread)

    def _notes(self, setups: dict[str, Setup]) -> list[str]:
        """What a reader should know."""
        notes = []
        if any(setup.hosts and _most(setup.hosts) < len(setup.hosts) for setup in setups.values()):
            notes.append(
                "The ranks live on several hosts: the machine's own limits are those of one host, "
                "and the start is the group's barrier."
            )
        return notes


def _most(hosts: Sequence[str]) -> int:
    """Ranks of the host that has most of them."""
    return max(hosts.count(host) for host in set(hosts))
