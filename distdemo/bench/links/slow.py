"""Find slow links and slow ranks.

A link is compared with the median of the other links of its kind, which one slow link doesn't
change. If the ranks are on several hosts, links within a host and links between hosts are two
kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distdemo.bench.links.records import Figure, Link

SIMILAR = 4.0
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
        ways = [way for each in ratios for way in (each[rank], each[:, rank])]
        known = [way[~np.isnan(way)] for way in ways]
        return any(
            len(way) > 1 and way.min() > factor and way.max() <= SIMILAR * way.min()
            for way in known
        )

    suspects = [rank for rank in range(size) if is_slow(rank)]
    free = others(suspects)
    final = np.ones_like(times)
    for kind in (crosses, ~crosses):
        for figure, each in enumerate(times):
            among = kind & free & ~np.isnan(each)
            if among.sum() > 1:
                final[figure][among] = each[among] / medians_of_others(each[among])
    found = []
    for link in links:
        pair = [float(each) for each in final[:, link.src, link.dst]]
        slow = [name for name, ratio in zip(FIGURES, pair, strict=True) if ratio > factor]
        found.append(
            replace(link, latency_ratio=pair[0], bandwidth_ratio=pair[1], slow=tuple(slow))
        )
    return tuple(found), tuple(suspects)


def medians_of_others(values: np.ndarray) -> np.ndarray:
    """Return, for each of two or more values, the median of all other values."""
    count = len(values)
    order = values.argsort()
    position = np.empty(count, dtype=int)
    position[order] = np.arange(count)
    low, high = (count - 2) // 2, (count - 1) // 2
    ordered = values[order]
    found: np.ndarray = (ordered[low + (position <= low)] + ordered[high + (position <= high)]) / 2
    return found
