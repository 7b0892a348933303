"""Launcher side of ``bench links``: run one world, report its links, and find the slow ones.

If the world ends early (a rank dies, Ctrl-C, SIGTERM), the links measured before are still judged
and reported. A link is compared with the median of the other links of its kind, which one slow
link doesn't change. If the ranks are on several hosts, links within a host and links between hosts
are two kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from time import monotonic

import numpy as np

from distdemo import backends
from distdemo.bench.links.rank import LinkSample, measure
from distdemo.bench.links.records import Figure, Link, LinksReport, LinksSpec
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.environment import environment
from distdemo.measure.load import LaunchLoad, taken_cores
from distdemo.versions import versions


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
        start: Function that starts the world.
        on_progress: Callback with the number of samples so far and a description of the last one.
    """
    began = monotonic()
    samples: list[LinkSample] = []
    loads: dict[int, LaunchLoad] = {}

    def on_message(rank: int, sample: LinkSample | LaunchLoad | None) -> None:
        if isinstance(sample, LaunchLoad):
            loads[rank] = sample
        elif sample is not None:
            samples.append(sample)
            if on_progress is not None:
                pair = f"rank {sample.src} to rank {sample.dst}"
                on_progress(len(samples), f"{pair}, round {sample.round + 1} of {spec.rounds}")

    report, interrupted = None, False
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
            min(sample.latency_s for sample in rounds),
            max(sample.bandwidth_bytes_per_s for sample in rounds),
            wrong=sum(sample.wrong for sample in rounds),
        )
        for pair, rounds in sorted(by_pair.items())
    ]


SIMILAR_RATIO = 4.0
"""Largest ratio of a slow rank's slowest link to its fastest: a slow rank delays all its links. If
the ratio is larger, single links are slow."""
FIGURES: tuple[Figure, ...] = ("latency", "bandwidth")


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
    size = 1 + max((max(link.src, link.dst) for link in links), default=0)
    times = np.full((2, size, size), np.nan)  # latency and seconds per byte, by src and dst
    for link in links:
        times[:, link.src, link.dst] = link.latency_s, 1 / link.bandwidth_bytes_per_s
    names = np.array(hosts[:size] or [""] * size)
    crosses = names[:, None] != names[None, :]

    def others(ranks: Sequence[int]) -> np.ndarray:
        mine = np.isin(np.arange(size), ranks)
        return ~(mine[:, None] | mine[None, :])

    def is_slow(rank: int) -> bool:
        ratios = np.where(np.isnan(times), np.nan, 1.0)
        for kind in (crosses, ~crosses):
            for figure, each in enumerate(times):
                usual = each[kind & others([rank]) & ~np.isnan(each)]
                if len(usual):
                    ratios[figure][kind] = each[kind] / np.median(usual)
        directions = [each for figure in ratios for each in (figure[rank], figure[:, rank])]
        known = [each[~np.isnan(each)] for each in directions]
        return any(
            len(each) > 1 and each.min() > factor and each.max() <= SIMILAR_RATIO * each.min()
            for each in known
        )

    suspects = [rank for rank in range(size) if is_slow(rank)]
    free = others(suspects)
    ratios = np.ones_like(times)
    for kind in (crosses, ~crosses):
        for figure, each in enumerate(times):
            among = kind & free & ~np.isnan(each)
            if among.sum() > 1:
                ratios[figure][among] = each[among] / medians_of_others(each[among])
    judged = []
    for link in links:
        pair = [float(each) for each in ratios[:, link.src, link.dst]]
        slow = [name for name, ratio in zip(FIGURES, pair, strict=True) if ratio > factor]
        judged.append(
            replace(link, latency_ratio=pair[0], bandwidth_ratio=pair[1], slow=tuple(slow))
        )
    return tuple(judged), tuple(suspects)


def medians_of_others(values: np.ndarray) -> np.ndarray:
    """Return, for each of two or more values, the median of all other values."""
    count = len(values)
    order = values.argsort()
    position = np.empty(count, dtype=int)
    position[order] = np.arange(count)
    low, high = (count - 2) // 2, (count - 1) // 2
    ordered = values[order]
    middle = np.stack([ordered[low + (position <= low)], ordered[high + (position <= high)]])
    medians: np.ndarray = middle.mean(axis=0)
    return medians
