"""The launcher's side of ``bench links``: one world, and the report of what its ranks measured.

Whatever ends the world early (a rank that dies, Ctrl-C, SIGTERM) leaves the links that were
measured, judged like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import monotonic

from distdemo import backends
from distdemo.bench.environment import environment
from distdemo.bench.links.rank import Visited, measure
from distdemo.bench.links.records import Link, LinksReport, LinksSpec
from distdemo.bench.links.slow import judged
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.versions import versions


def measure_links(
    spec: LinksSpec,
    world: WorldSpec,
    start: Callable[..., WorldReport],
    watch: Callable[[int, str], object] | None = None,
) -> LinksReport:
    """Measure every pair of ranks, both ways.

    Args:
        spec: what to measure.
        world: to measure it in.
        start: starts the world.
        watch: called after each visit, with the number of visits and what the last one was.
    """
    began = monotonic()
    visits: list[Visited] = []

    def hear(_: int, visit: Visited | None) -> None:
        if visit is not None:
            visits.append(visit)
            if watch is not None:
                lap = f"round {visit.round + 1} of {spec.rounds}"
                watch(len(visits), f"rank {visit.src} to rank {visit.dst}, {lap}")

    ended, interrupted = None, False
    try:
        ended = start(world, measure, (spec,), hear=hear)
        interrupted = ended.interrupted_by is not None
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    known = {visit.src: visit.host for visit in visits}
    hosts: tuple[str, ...] = ()
    if len(set(known.values())) > 1:
        hosts = tuple(known.get(rank, "?") for rank in range(spec.world_size))
    links, slow_ranks = judged(_links(visits), spec.factor, hosts)
    return LinksReport(
        spec,
        links,
        slow_ranks,
        median(link.latency_s for link in links) if links else None,
        median(link.bandwidth_bytes_per_s for link in links) if links else None,
        elapsed_s=monotonic() - began,
        interrupted=interrupted,
        hosts=hosts,
        environment=environment(gpu=world.device != "cpu"),
        versions=versions() | backends.versions_of(world if ended is None else ended.world),
        world=None if ended is None or ended.ok or interrupted else ended,
    )


def _links(visits: list[Visited]) -> list[Link]:
    """Those that were measured, each by the best of its rounds.

    Not the median: whatever else runs on the machine makes a round worse, never better, and may
    last for more than one. A link that is slow by itself is so in every round.
    """
    by_pair: dict[tuple[int, int], list[Visited]] = {}
    for visit in visits:
        by_pair.setdefault((visit.src, visit.dst), []).append(visit)
    return [
        Link(
            *pair,
            min(each.latency_s for each in rounds),
            max(each.bandwidth_bytes_per_s for each in rounds),
            wrong=sum(each.wrong for each in rounds),
        )
        for pair, rounds in sorted(by_pair.items())
    ]
