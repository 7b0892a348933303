"""Launcher side of ``bench links``: run one world, report its links, and find the slow ones.

If the world ends early (a rank dies, Ctrl-C, SIGTERM), the links measured before are still judged
and reported. A link is compared with the median of the other links of its kind, which one slow
link doesn't change. If the ranks are on several hosts, links within a host and links between hosts
are two kinds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from time import monotonic

from distdemo import backends
from distdemo.bench.links.rank import LinkSample, measure
from distdemo.bench.links.records import Figure, Link, LinksReport, LinksSpec
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import LaunchLoad, environment, taken_cores
from distdemo.versions import versions

SIMILAR_RATIO = 4.0
"""Largest ratio of a slow rank's slowest link to its fastest: a slow rank delays all its links. If
the ratio is larger, single links are slow."""
COSTS: dict[Figure, Callable[[Link], float]] = {
    "latency": lambda link: link.latency_s,
    "bandwidth": lambda link: 1 / link.bandwidth_bytes_per_s,
}
"""Figures in which a link can be slow, as times."""


def measure_links(
    spec: LinksSpec,
    world: WorldSpec,
    start: Callable[..., WorldReport],
    on_progress: Callable[[int, str], object] | None = None,
) -> LinksReport:
    """Measure every pair of ranks in both directions.

    Args:
        spec: Spec of the measurement.
        world: World to measure.
        start: Function that starts the world, such as ``Session.start``.
        on_progress: Callback with the number of samples so far and a description of the last one.
    """
    began = monotonic()
    samples: list[LinkSample] = []
    loads: dict[int, LaunchLoad] = {}

    def on_message(rank: int, message: LinkSample | LaunchLoad | None) -> None:
        if isinstance(message, LaunchLoad):
            loads[rank] = message
        elif message is not None:
            samples.append(message)
            if on_progress is not None:
                pair = f"rank {message.src} to rank {message.dst}"
                on_progress(len(samples), f"{pair}, round {message.round + 1} of {spec.rounds}")

    report = None
    interrupted = False
    try:
        report = start(world, measure, (spec,), on_message=on_message)
        interrupted = report.interrupted_by is not None
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    host_of = {sample.src: sample.host for sample in samples}
    hosts: tuple[str, ...] = ()
    if len(set(host_of.values())) > 1:
        hosts = tuple(host_of.get(rank, "?") for rank in range(spec.world_size))
    taken = None
    if len(loads) == spec.world_size:
        taken = taken_cores([[loads[rank] for rank in sorted(loads)]], hosts, at_once=2)
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
        taken_cores=taken,
        environment=environment(gpu=world.device != "cpu"),
        versions=versions() | backends.versions_of(world if report is None else report.world),
        world=None if report is None or report.ok or interrupted else report,
    )


def _links(samples: Sequence[LinkSample]) -> list[Link]:
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
            min(sample.latency_s for sample in rounds),
            max(sample.bandwidth_bytes_per_s for sample in rounds),
            wrong=sum(sample.wrong for sample in rounds),
        )
        for pair, rounds in sorted(by_pair.items())
    ]


# -------------------------------------------------------------------------------------- slow links


def judge_links(
    links: Sequence[Link], factor: float, hosts: Sequence[str] = ()
) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """Return the links with the slow ones marked, and the slow ranks.

    A rank is slow if all its outgoing links, or all its incoming ones, are similarly slow compared
    with the links between the other ranks. Its links are not marked then.

    Args:
        links: Measured links, at most one per ordered pair.
        factor: Multiple of the median above which a link is slow.
        hosts: Host of each rank; empty if all are on one.
    """
    kinds: dict[bool, list[Link]] = {}
    for link in links:
        crosses = bool(hosts) and hosts[link.src] != hosts[link.dst]
        kinds.setdefault(crosses, []).append(link)
    ranks = sorted({rank for link in links for rank in (link.src, link.dst)})
    slow_ranks = tuple(
        rank
        for rank in ranks
        if any(
            len(ratios) > 1 and min(ratios) > factor and max(ratios) <= SIMILAR_RATIO * min(ratios)
            for ratios in _ratios_of_rank(rank, kinds.values())
        )
    )
    ratios: dict[tuple[Figure, Link], float] = {}
    for alike in kinds.values():
        free = [link for link in alike if not {link.src, link.dst} & {*slow_ranks}]
        for figure, cost in COSTS.items() if len(free) > 1 else ():
            ordered = sorted(map(cost, free))
            for link in free:
                ratios[figure, link] = cost(link) / _median_of_others(ordered, cost(link))
    judged = []
    for link in links:
        own = {figure: ratios.get((figure, link), 1.0) for figure in COSTS}
        slow = tuple(figure for figure, ratio in own.items() if ratio > factor)
        latency_ratio, bandwidth_ratio = own["latency"], own["bandwidth"]
        judged.append(
            replace(link, latency_ratio=latency_ratio, bandwidth_ratio=bandwidth_ratio, slow=slow)
        )
    return tuple(judged), slow_ranks


def _ratios_of_rank(rank: int, kinds: Iterable[Sequence[Link]]) -> Iterator[list[float]]:
    """Yield how slow a rank's links are in each figure and direction, as multiples of the median.

    The median is that of the links of the same kind between the other ranks.
    """
    for cost in COSTS.values():
        ratios: dict[bool, list[float]] = {True: [], False: []}  # by direction
        for alike in kinds:
            own = [link for link in alike if rank in (link.src, link.dst)]
            others = [cost(link) for link in alike if rank not in (link.src, link.dst)]
            usual = median(others) if others else None
            for link in own:
                ratio = 1.0 if usual is None else cost(link) / usual
                ratios[link.src == rank].append(ratio)
        yield from ratios.values()


def _median_of_others(ordered: Sequence[float], value: float) -> float:
    """Return the median of two or more ordered values without this one."""
    position = bisect_left(ordered, value)
    low = (len(ordered) - 2) // 2
    high = (len(ordered) - 1) // 2
    return (ordered[low + (position <= low)] + ordered[high + (position <= high)]) / 2
