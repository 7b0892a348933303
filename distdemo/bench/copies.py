"""Copies in memory: what no transport through it can beat.

Bandwidth counts each copied byte once, though it is read and written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo.bench.pace import FAST, FEWEST
from distdemo.bench.summary import quantile
from distdemo.demo.clock import EventClock

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from distdemo.bench.company import Company

LARGE = 64 << 20  # bytes: more than most processors' last-level cache
SMALL = 16 << 20  # for each of many ranks that copy at once, who share the cache
FEW_RANKS = 4
LEAST = 1 << 20  # what is smaller stays in a core's own cache


class Copy:
    """Two buffers on this rank's device, and the copy from one to the other.

    Args:
        size: bytes of each.
        device: where they are.
    """

    def __init__(self, size: int, device: str) -> None:
        import torch

        self.size = size
        self._on_host = device == "cpu"
        self._from: torch.Tensor = torch.ones(size, dtype=torch.uint8, device=device)
        self._to = torch.zeros_like(self._from)
        self._copy()

    def at_once(self, seconds: float, others: Company, *, crowded: bool) -> float:
        """Collective: bytes a second while all ranks copy; no copy counts that others don't join.

        Args:
            seconds: that count.
            others: who do the same.
            crowded: ranks take turns on the cores.
        """
        self._copy_until(others.begun)
        bandwidth = (self._over_all if crowded else self.alone)(seconds)
        self._copy_until(others.through)
        return bandwidth

    def _copy_until(self, over: Callable[[], bool]) -> None:
        while not over():
            self._copy()

    def alone(self, seconds: float) -> float:
        """Bytes a second of an undisturbed copy, of as many as fit into so many seconds."""
        took: list[float] = []
        until = perf_counter() + seconds
        while perf_counter() < until or len(took) < FEWEST:
            took.append(self._copy())
        return self.size / quantile(sorted(took), FAST)

    def _over_all(self, seconds: float) -> float:
        """Bytes a second over all of the time, in which others had the core now and then."""
        copies, began = 0, perf_counter()
        while (elapsed := perf_counter() - began) < seconds or copies < FEWEST:
            self._copy()
            copies += 1
        return self.size * copies / elapsed

    def _copy(self) -> float:
        """One copy: its seconds."""
        if self._on_host:
            began = perf_counter()
            self._to.copy_(self._from)
            return perf_counter() - began
        clock = EventClock()
        mark = clock.mark()
        self._to.copy_(self._from)
        return clock.between(mark, clock.mark())


def size_alone(room: int) -> int:
    """Bytes of a buffer that only one rank copies: twice the cache, unless memory is short.

    Args:
        room: bytes that a buffer may have.
    """
    return min(max(LARGE, 2 * _cache()), room)


def size_at_once(ranks: int, room: int) -> int:
    """Bytes of each buffer where all ranks copy: together they don't fit into the cache.

    Args:
        ranks: how many.
        room: bytes that a rank's buffer may have.
    """
    each = LARGE if ranks <= FEW_RANKS else max(SMALL, 2 * _cache() // ranks)
    return min(each, room)


def _cache() -> int:
    """Bytes of the last-level cache; 0 where the system does not say."""
    found = 0
    for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        with suppress(ValueError, OSError):  # not a name, or not known here
            found = max(found, os.sysconf(name))
    return min(found, 256 << 20)
