"""What the ranks saw of the machine itself, put together: a gauge's is the slowest rank's."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.bench.samples import Look, Looks
from distdemo.bench.yardsticks import GAUGES, Gauge


class GaugeLog:
    """Collects what was seen of one backend's worlds.

    Args:
        world_size: ranks that tell.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._told: dict[int, dict[int, Looks]] = {}

    def add(self, rank: int, told: Looks) -> None:
        """Take what a rank saw in a launch."""
        self._told.setdefault(told.launch, {})[rank] = told

    def gauges(self) -> tuple[Gauge, ...]:
        """A row a launch, from the first one that timed; what none measured is left out.

        A launch of which not all ranks have told has an empty row.
        """
        launches = [self._launch(number) for number in range(1, max(self._told, default=0) + 1)]
        found = []
        for place, kind in enumerate(GAUGES):
            times = tuple(launch[place] for launch in launches)
            if any(times):
                found.append(Gauge(kind, times))
        return tuple(found)

    def _launch(self, number: int) -> tuple[tuple[float, ...], ...]:
        told = self._told.get(number, {})
        if len(told) < self._world_size:
            return ((),) * len(GAUGES)
        return slowest([each.seen for each in told.values()])


def slowest(ranks: Sequence[Sequence[Look]]) -> tuple[tuple[float, ...], ...]:
    """Of what the ranks saw at the same moments, the slowest one's.

    Args:
        ranks: what each saw, a look a moment.

    Returns:
        By the order of ``GAUGES``, an entry a moment at which any rank measured it.
    """
    found: list[list[float]] = [[] for _ in GAUGES]
    for moment in zip(*ranks, strict=True):
        for entries, column in zip(found, zip(*moment, strict=True), strict=True):
            known = [seconds for seconds in column if seconds is not None]
            entries.extend([max(known)] if known else [])
    return tuple(map(tuple, found))
