"""The launcher's side of ``bench links``: one world, and the report that comes of what it tells.

Whatever ends the world early (a rank that dies, Ctrl-C, SIGTERM) leaves the links that were
measured, judged like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import monotonic

from distdemo import backends
from distdemo.bench.environment import environment
from distdemo.bench.links.rank import Checked, Here, Timed, Told, measure
from distdemo.bench.links.records import Link, LinksReport, LinksSpec
from distdemo.bench.links.slow import judged
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.versions import versions

Watch = Callable[[int, str], object]
"""Told how many visits were made, and of what the last one was."""
LOOK = 0.1  # seconds after a call of whoever watches, before the next one


def measure_links(
    spec: LinksSpec,
    world: WorldSpec,
    start: Callable[..., WorldReport],
    watch: Watch | None = None,
    *,
    engine: str = "local",
) -> LinksReport:
    """Measure every pair of ranks, both ways.

    Args:
        spec: what to measure.
        world: to measure it in.
        start: starts the world.
        watch: called as results come, some times a second.
        engine: what starts the ranks, for the report of a world that did not come to its end.
    """
    run = _Run(spec, watch)
    ended = None
    try:
        ended = start(world, measure, (spec,), hear=run.hear)
    except (KeyboardInterrupt, Terminated):
        run.interrupted = True
    known = set(run.hosts.values())
    hosts = tuple(run.hosts.get(rank, "?") for rank in range(spec.world_size))
    hosts = (hosts if len(known) > 1 else ()) if ended is None else ended.hosts
    links, slow_ranks = judged(run.links(), spec.factor, hosts)
    failed = ended is not None and not ended.ok and ended.interrupted_by is None
    return LinksReport(
        spec,
        links,
        slow_ranks,
        median(link.latency_s for link in links) if links else None,
        median(link.bandwidth_bytes_per_s for link in links) if links else None,
        measuring_s=run.last - run.first if run.told == spec.visits > 0 else None,
        elapsed_s=monotonic() - run.began,
        interrupted=run.interrupted or (ended is not None and ended.interrupted_by is not None),
        hosts=hosts,
        engine=engine if ended is None else ended.engine,
        start_method=world.start_method if ended is None else ended.start_method,
        environment=environment(gpu=world.device != "cpu"),
        versions=versions() | backends.versions_of(world if ended is None else ended.world),
        world=ended if failed else None,
    )


@dataclass(slots=True)
class _Run:
    """What was heard so far."""

    spec: LinksSpec
    watch: Watch | None
    interrupted: bool = False
    began: float = field(default_factory=monotonic)
    first: float = 0.0
    last: float = 0.0
    told: int = 0
    hosts: dict[int, str] = field(default_factory=dict)
    _looked: float = 0.0
    _rounds: dict[tuple[int, int], list[Timed]] = field(default_factory=dict)
    _wrong: dict[tuple[int, int], int] = field(default_factory=dict)

    def hear(self, rank: int, told: Told) -> bool:
        """Note what a rank tells."""
        if isinstance(told, Here):
            self.hosts[rank] = told.host
        elif isinstance(told, Checked):
            pair = told.src, told.dst
            self._wrong[pair] = self._wrong.get(pair, 0) + told.wrong
        elif isinstance(told, Timed):
            self.last = monotonic()
            self.first = self.first or self.last
            self.told += 1
            self._rounds.setdefault((told.src, told.dst), []).append(told)
            if self.watch is not None and self.last - self._looked >= LOOK:
                lap = f"round {told.round + 1} of {self.spec.rounds}"
                self.watch(self.told, f"rank {told.src} to rank {told.dst}, {lap}")
                self._looked = monotonic()
        return False

    def links(self) -> list[Link]:
        """Those that were measured, each by the best of its rounds.

        Not the median: whatever else runs on the machine makes a round worse, never better, and may
        last for more than one. A link that is slow by itself is so in every round.
        """
        return [
            Link(
                *pair,
                min(each.latency_s for each in rounds),
                max(each.bandwidth_bytes_per_s for each in rounds),
                wrong=self._wrong.get(pair, 0),
            )
            for pair, rounds in sorted(self._rounds.items())
        ]
