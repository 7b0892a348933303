"""Launcher side of ``bench links``: run one world and report its measurements.

If the world ends early (a rank dies, Ctrl-C, SIGTERM), the links measured before are still judged
and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import monotonic

from distdemo import backends
from distdemo.bench.environment import environment
from distdemo.bench.links.rank import LinkSample, measure
from distdemo.bench.links.records import Link, LinksReport, LinksSpec
from distdemo.bench.links.slow import judge_links
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.versions import versions


def measure_links(
    spec: LinksSpec,
    world: WorldSpec,
    start: Callable[..., WorldReport],
    watch: Callable[[int, str], object] | None = None,
) -> LinksReport:
    """Measure every pair of ranks in both directions.

    Args:
        spec: Spec of the measurement.
        world: World to measure.
        start: Function that starts the world.
        watch: Callback with the number of samples so far and a description of the last one.
    """
    began = monotonic()
    samples: list[LinkSample] = []

    def on_message(_: int, sample: LinkSample | None) -> None:
        if sample is not None:
            samples.append(sample)
            if watch is not None:
                lap = f"round {sample.round + 1} of {spec.rounds}"
                watch(len(samples), f"rank {sample.src} to rank {sample.dst}, {lap}")

    ended, interrupted = None, False
    try:
        ended = start(world, measure, (spec,), on_message=on_message)
        interrupted = ended.interrupted_by is not None
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    known = {sample.src: sample.host for sample in samples}
    hosts: tuple[str, ...] = ()
    if len(set(known.values())) > 1:
        hosts = tuple(known.get(rank, "?") for rank in range(spec.world_size))
    links, slow_ranks = judge_links(_links(samples), spec.factor, hosts)
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


def _links(samples: list[LinkSample]) -> list[Link]:
    """Return the measured links, each with the best of its rounds.

    The best rather than the median, because other programs only make rounds slower and may last for
    several of them. A slow link is slow in every round.
    """
    by_pair: dict[tuple[int, int], list[LinkSample]] = {}
    for sample in samples:
        by_pair.setdefault((sample.src, sample.dst), []).append(sample)
    return [
        Link(
            *pair,
            min(each.latency_s for each in rounds),
            max(each.bandwidth_bytes_per_s for each in rounds),
            wrong=sum(each.wrong for each in rounds),
        )
        for pair, rounds in sorted(by_pair.items())
    ]
