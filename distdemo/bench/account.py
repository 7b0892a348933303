"""All that is known of a measurement so far, and the report that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from distdemo import backends
from distdemo.bench.environment import cores, environment
from distdemo.bench.harvest import Harvest
from distdemo.bench.judge import judge
from distdemo.bench.limits import bound_of
from distdemo.bench.looks import GaugeLog
from distdemo.bench.old_records import BenchReport, BenchSpec, Series
from distdemo.bench.samples import Grounds, Looks, Sample
from distdemo.bench.summary import median, quantile
from distdemo.bench.yardsticks import PAGE, Alignment, Setup
from distdemo.errors import DistdemoError
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.versions import versions


@dataclass(slots=True)
class Account:
    """What came of each world, and what ranks told.

    Attributes:
        once: all was done in one world a backend.
        failure: the first world that failed.
        errors: by backend, why nothing more came of it.
        interrupted: a signal ended the measurement.
    """

    spec: BenchSpec
    once: bool = False
    setups: dict[str, Setup] = field(default_factory=dict)
    harvest: Harvest = field(init=False)
    failure: WorldReport | None = None
    errors: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    began: float = field(default_factory=monotonic)
    _gauges: dict[str, GaugeLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.harvest = Harvest(self.spec)

    def begin(self, world: WorldSpec) -> None:
        """Worlds like this one follow."""
        self.setups[world.backend] = Setup(
            world,
            cores=cores().effective,
            ranks_per_host=world.world_size,
            start_method=world.start_method,
        )
        self._gauges[world.backend] = GaugeLog(world.world_size)

    def note_world(self, world: WorldSpec, report: WorldReport) -> None:
        """One of them has ended."""
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
            self.failure = self.failure or report
            self.errors[world.backend] = "A world failed"

    def note_error(self, backend: str, error: DistdemoError) -> None:
        """No (further) world of this backend could be started."""
        self.errors[backend] = f"{error.what} {error.why} It stopped"

    def note_grounds(self, backend: str, told: Grounds) -> None:
        """What rank 0 found before the first visit; what only one launch measures stays."""
        before = self.setups[backend]
        limits = told.limits or before.limits
        aligned = None if told.meeting is None else Alignment(told.way, told.meeting)
        self.setups[backend] = replace(
            before,
            alignment=before.alignment or aligned,
            harness=before.harness or told.harness,
            limits=limits,
            bound=bound_of(limits, backends.REGISTRY[backend].transport),
        )

    def note_looks(self, backend: str, rank: int, told: Looks) -> None:
        """What a rank saw of the machine itself in a launch."""
        self._gauges[backend].add(rank, told)

    def note_sample(self, backend: str, rank: int, sample: Sample) -> bool:
        """What a rank found in a visit; whether that completed it."""
        return self.harvest.add(rank, sample, comparable=self._one_clock(backend))

    def _one_clock(self, backend: str) -> bool:
        """Whether the moments of all its ranks can be compared: they live on one machine."""
        aligned = self.setups[backend].alignment
        return aligned is not None and aligned.way == PAGE

    # -------------------------------------------------------------------------------- reporting

    def report(self, *, whole: bool = False) -> BenchReport:
        """All that is known by now.

        Args:
            whole: at the end; with what it takes a while to work out.
        """
        made = BenchReport(
            self.spec,
            tuple(self._series(number, whole=whole) for number in range(len(self.spec.series))),
            self.setups,
            self.failure,
            monotonic() - self.began,
            self.interrupted,
        )
        if not whole:
            return made
        found = versions()
        for setup in self.setups.values():
            found |= backends.versions_of(setup.world)
        return replace(
            made,
            setups={backend: self._setup(backend) for backend in self.setups},
            environment=environment(cores(), [each.world for each in self.setups.values()]),
            notes=tuple(self._notes()),
            versions=found,
        )

    def _series(self, number: int, *, whole: bool) -> Series:
        """One of them; at the end judged."""
        made = self.harvest.series(number, whole=whole)
        if not whole:
            return made
        setup = self.setups.get(made.spec.backend)
        ranks = made.spec.points[0].specs[0].group_size if made.spec.points else 0
        rows = made.rows
        if setup is not None:
            rows = tuple(replace(row, judgement=judge(row, rows, setup, ranks)) for row in rows)
        return replace(made, rows=rows, error=self._why_short(made))

    def _why_short(self, made: Series) -> str:
        """Why sizes are missing; empty if none is."""
        points = len(made.spec.points)
        missing = points - len(made.rows)
        if not missing:
            return ""
        why = self.errors.get(made.spec.backend, "The measurement was interrupted")
        return f"{why} before {missing} of {points} sizes were measured."

    def _setup(self, backend: str) -> Setup:
        """With what the machine did meanwhile, and how far apart the ranks' starts were."""
        setup = replace(self.setups[backend], gauges=self._gauges[backend].gauges())
        starts = sorted(self.harvest.starts.get(backend, ()))
        if setup.alignment is None or not starts:
            return setup
        spread = replace(setup.alignment, spread=median(starts), spread_p99=quantile(starts, 0.99))
        return replace(setup, alignment=spread)

    def _notes(self) -> list[str]:
        """What a reader should know."""
        notes = []
        if any(
            setup.hosts and _most(setup.hosts) < len(setup.hosts) for setup in self.setups.values()
        ):
            notes.append(
                "The ranks live on several hosts: the machine's own limits are those of one host, "
                "and the start is the group's barrier."
            )
        if self.once:
            notes.append(
                "Here MPI begins once in a process, so blocks of one world stand for launches: "
                "intervals don't hold what differs from world to world, and are too narrow."
            )
        if self.spec.skew and not all(map(self._one_clock, self.setups)):
            notes.append(
                "Which rank comes late can't be told: the ranks' clocks can't be compared, as they "
                "share no memory."
            )
        return notes


def _most(hosts: Sequence[str]) -> int:
    """Ranks of the host that has most of them."""
    return max(hosts.count(host) for host in set(hosts))
