"""The launcher's side of ``bench links``: one world, and the report that comes of what it tells.

Whatever ends the world early (a rank that dies, Ctrl-C, SIGTERM) leaves the links that were
measured, judged like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from distdemo import backends
from distdemo.bench.environment import cores, environment
from distdemo.bench.figures import time_text
from distdemo.bench.linking import Link, LinksReport, LinksSpec
from distdemo.bench.links.program import Checked, Here, Said, Timed, links
from distdemo.bench.links.slow import best, judged, typical
from distdemo.bench.old_records import Course
from distdemo.check.checker import OUTER_LIMIT, Start
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.launcher.start_method import choose
from distdemo.versions import versions

Watch = Callable[[Course], object]
LOOK = 0.1  # seconds after a call of whoever watches, before the next one
OVERRUN = 1.5  # times the budget, beyond which it is said that it could not hold

HALVES = "Latency is half of a round trip, so the two directions of a pair share it."
FASTEST = (
    "Figures are those of the fastest tenth of a link's messages, in the best round: what it does "
    "undisturbed."
)
KINDS = "Links within a host and links between hosts are each held against their own kind."


def measure_links(
    spec: LinksSpec, start: Start, watch: Watch | None = None, *, engine: str = "local"
) -> LinksReport:
    """Measure every pair of ranks, both ways.

    Args:
        spec: what to measure. Where its world has no patience, its timeout becomes that: the time
            that may pass without a word of any rank.
        start: starts a world.
        watch: called as results come, some times a second.
        engine: what starts the ranks, for the report of a world that did not come to its end.
    """
    run = _Run(spec, watch, engine, choose(spec.world.start_method, spec.world.device).name)
    world = None
    try:
        world = start(_world(spec), links, (spec,), hear=run.hear)
    except (KeyboardInterrupt, Terminated):
        run.interrupted = True
    return run.report(world)


def _world(spec: LinksSpec) -> WorldSpec:
    if spec.world.stall is not None:
        return spec.world
    return replace(spec.world, deadline=OUTER_LIMIT, stall=spec.world.deadline)


@dataclass(slots=True)
class _Run:
    """What was heard so far."""

    spec: LinksSpec
    watch: Watch | None
    engine: str
    start_method: str
    interrupted: bool = False
    _began: float = field(default_factory=monotonic)
    _looked: float = 0.0
    _heard: tuple[float, float] | None = None
    _told: int = 0
    _last: Timed | None = None
    _hosts: dict[int, str] = field(default_factory=dict)
    _rounds: dict[tuple[int, int], list[Timed]] = field(default_factory=dict)
    _wrong: dict[tuple[int, int], int] = field(default_factory=dict)

    def hear(self, rank: int, said: Said) -> bool:
        """Note what a rank says."""
        if isinstance(said, Here):
            self._hosts[rank] = said.host
        elif isinstance(said, Checked):
            link = said.src, said.dst
            self._wrong[link] = self._wrong.get(link, 0) + said.wrong
        elif isinstance(said, Timed):
            self._note(said)
        self._show()
        return False

    def _note(self, said: Timed) -> None:
        """The time of a visit."""
        now = monotonic()
        self._heard = (now if self._heard is None else self._heard[0]), now
        self._told += 1
        self._last = said
        self._rounds.setdefault((said.src, said.dst), []).append(said)

    def _show(self) -> None:
        """Let whoever watches know, now and then."""
        if self.watch is None or self._last is None or monotonic() - self._looked < LOOK:
            return
        self.watch(self._course(self._last))
        self._looked = monotonic()

    def _course(self, said: Timed) -> Course:
        done = self._told / self.spec.visits
        left = (monotonic() - self._began) * (1 - done) / done
        now = f"rank {said.src} to rank {said.dst}, round {said.lap + 1} of {self.spec.rounds}"
        return Course(done, left, now)

    # ------------------------------------------------------------------------------- the report

    def report(self, world: WorldReport | None) -> LinksReport:
        """All that is known, judged.

        Args:
            world: how it went; None if it was interrupted.
        """
        hosts = self._known_hosts() if world is None else world.hosts
        found = [self._link(pair) for pair in sorted(self._rounds)]
        named, suspects = judged(found, self.spec.factor, hosts)
        usual = typical(found)
        report = LinksReport(
            self.spec,
            named,
            usual.latency,
            usual.bandwidth,
            suspects,
            seconds=monotonic() - self._began,
            interrupted=self.interrupted,
            hosts=hosts,
            engine=self.engine,
            start_method=self.start_method,
            environment=environment(cores(), [self.spec.world]),
            notes=tuple(self._notes(found, hosts)),
            versions=versions() | backends.versions_of(self.spec.world),
        )
        return report if world is None else _ended(report, world)

    def _known_hosts(self) -> tuple[str, ...]:
        """Of each rank, as they have told; empty if all live on one."""
        if len(set(self._hosts.values())) < 2:
            return ()
        return tuple(self._hosts.get(rank, "?") for rank in range(self.spec.world.world_size))

    def _link(self, pair: tuple[int, int]) -> Link:
        figures = [(each.latency, each.bandwidth) for each in self._rounds[pair]]
        return Link(*pair, *best(figures), wrong=self._wrong.get(pair, 0))

    def _notes(self, found: Sequence[Link], hosts: Sequence[str]) -> list[str]:
        size = self.spec.world.world_size
        notes = [HALVES, FASTEST]
        if len(set(hosts)) > 1:
            notes.append(KINDS)
        if len(found) < size * (size - 1):
            notes.append(f"{len(found)} of {size * (size - 1)} links were measured.")
        return notes + self._overrun()

    def _overrun(self) -> list[str]:
        """That the budget could not hold, and what would be quicker."""
        spec = self.spec
        if spec.iters is not None or self._heard is None or self._told < spec.visits:
            return []
        took = self._heard[1] - self._heard[0]
        if took <= OVERRUN * spec.budget:
            return []
        why = (
            f"The {spec.visits:,} visits took {time_text(took)}, not the {time_text(spec.budget)} "
            "of the budget: each sends a few messages at least"
        )
        if spec.rounds == 1:
            return [f"{why}; --iters 1 sends the fewest."]
        rounds = max(1, int(spec.rounds * spec.budget / took))
        less = time_text(took * rounds / spec.rounds)
        return [f"{why}; --rounds {rounds} would take about {less}."]


def _ended(report: LinksReport, world: WorldReport) -> LinksReport:
    """With what the world's end adds."""
    return replace(
        report,
        failure=None if world.ok or world.interrupted_by is not None else world,
        interrupted=world.interrupted_by is not None,
        engine=world.engine,
        start_method=world.start_method,
        versions=dict(report.versions) | backends.versions_of(world.world),
    )
