"""The launcher's side of ``bench links``: one world, and the report that grows with what it tells.

Whatever ends the world early (a rank that dies, Ctrl-C) leaves the links that were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from distdemo import backends
from distdemo.linking import Link, LinksReport, LinksSpec
from distdemo.measuring import Course
from distdemo.model import WorldSpec
from distdemo.outcomes import WorldReport
from distdemo.programs.bench.environment import cores, environment
from distdemo.programs.bench.links.program import Checked, Timed, links
from distdemo.programs.bench.links.slow import best, judged, typical
from distdemo.programs.checker import OUTER_LIMIT, Start
from distdemo.versions import versions

Watch = Callable[[LinksReport, Course], object]
LOOK = 0.1  # seconds between two reports to whoever watches

HALVES = "Latency is half of a round trip, so the two directions of a pair share it."
FASTEST = (
    "Figures are those of the fastest tenth of a link's messages, in the best round: what it does "
    "undisturbed."
)
KINDS = "Links within a host and links between hosts are each held against their own kind."


def measure_links(spec: LinksSpec, start: Start, watch: Watch | None = None) -> LinksReport:
    """Measure every pair of ranks, both ways.

    Args:
        spec: what to measure. Where its world has no patience, its timeout becomes that: the time
            that may pass without a word of any rank.
        start: starts a world.
        watch: called as results come, some ten times a second, with all that is known.
    """
    run = _Run(spec, watch)
    world = None
    try:
        world = start(_world(spec), links, (spec,), hear=run.hear)
    except KeyboardInterrupt:
        run.interrupted = True
    return run.report(world)


def _world(spec: LinksSpec) -> WorldSpec:
    if spec.world.patience is not None:
        return spec.world
    return replace(spec.world, timeout=OUTER_LIMIT, patience=spec.world.timeout)


@dataclass(slots=True)
class _Run:
    """What was heard so far."""

    spec: LinksSpec
    watch: Watch | None
    interrupted: bool = False
    _began: float = field(default_factory=monotonic)
    _looked: float = 0.0
    _told: int = 0
    _rounds: dict[tuple[int, int], list[Timed]] = field(default_factory=dict)
    _wrong: dict[tuple[int, int], int] = field(default_factory=dict)

    def hear(self, _: int, said: Timed | Checked) -> bool:
        """Note what a rank says."""
        link = said.src, said.dst
        if isinstance(said, Checked):
            self._wrong[link] = self._wrong.get(link, 0) + said.wrong
            return False
        self._told += 1
        self._rounds.setdefault(link, []).append(said)
        if self.watch is not None and monotonic() - self._looked >= LOOK:
            self._looked = monotonic()
            self.watch(self.report(None), self._course(said))
        return False

    def report(self, world: WorldReport | None) -> LinksReport:
        """All that is known.

        Args:
            world: how it went; None while it runs, or if it was interrupted.
        """
        hosts = () if world is None else world.hosts
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
            notes=tuple(self._notes(found, suspects, hosts)),
        )
        return report if world is None else _ended(report, world)

    def _link(self, pair: tuple[int, int]) -> Link:
        figures = [(each.latency, each.bandwidth) for each in self._rounds[pair]]
        return Link(*pair, *best(figures), wrong=self._wrong.get(pair, 0))

    def _course(self, said: Timed) -> Course:
        size, rounds = self.spec.world.world_size, self.spec.rounds
        done = self._told / (rounds * size * (size - 1))
        left = (monotonic() - self._began) * (1 - done) / done
        now = f"rank {said.src} to rank {said.dst}, round {said.lap + 1} of {rounds}"
        return Course(done, left, now)

    def _notes(
        self, found: Sequence[Link], suspects: Sequence[int], hosts: Sequence[str]
    ) -> list[str]:
        size = self.spec.world.world_size
        notes = [HALVES, FASTEST]
        if len(set(hosts)) > 1:
            notes.append(KINDS)
        if len(found) < size * (size - 1):
            notes.append(f"{len(found)} of {size * (size - 1)} links were measured.")
        notes += [
            f"Rank {rank} is slow with each of the others: look at its host and its core rather "
            "than at the links."
            for rank in suspects
        ]
        return notes


def _ended(report: LinksReport, world: WorldReport) -> LinksReport:
    """With what the world's end adds."""
    return replace(
        report,
        failure=None if world.ok or world.interrupted_by is not None else world,
        interrupted=world.interrupted_by is not None,
        hosts=world.hosts,
        engine=world.engine,
        start_method=world.start_method,
        environment=environment(cores()),
        versions=versions() | backends.versions_of(world.world),
    )
