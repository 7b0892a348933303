"""Which links are slow, or which ranks.

A link is compared with the median of the others of its kind, which one slow link does not move.
Where ranks live on several hosts, links within a host and links between hosts are two kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distdemo.bench.links.records import Figure, Link

ALIKE = 4.0
"""A slow rank delays whatever it does: its slowest link is at most this many times slower than its
quickest. Beyond, it is a matter of links."""
FIGURES: tuple[Figure, ...] = ("latency", "bandwidth")


def judged(
    links: Sequence[Link], factor: float, hosts: Sequence[str] = ()
) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """The same links, the slow ones marked, and the ranks that are slow themselves.

    A rank is, where all that it sends, or all that it gets, is slow against what travels between
    the others, and all of it to a like degree; its links are not marked then.

    Args:
        links: at most one for each ordered pair.
        factor: how many times slower than the median a link has to be.
        hosts: of each rank; empty if all live on one.
    """
    size = 1 + max((max(link.src, link.dst) for link in links), default=0)
    times = np.full((2, size, size), np.nan)  # latency, and seconds of a byte, by src and dst
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
            len(way) > 1 and way.min() > factor and way.max() <= ALIKE * way.min() for way in known
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
    """For each of some values, two at least, the median of all others; shape as given."""
    count = len(values)
    order = values.argsort()
    place = np.empty(count, dtype=int)
    place[order] = np.arange(count)
    low, high = (count - 2) // 2, (count - 1) // 2
    ordered = values[order]
    found: np.ndarray = (ordered[low + (place <= low)] + ordered[high + (place <= high)]) / 2
    return found
