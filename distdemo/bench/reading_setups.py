"""What a file of ``bench`` says of the worlds that were measured, and of the machine itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from distdemo.bench.recorded import RecordedGauge, RecordedLimit, RecordedSeries
from distdemo.bench.values import is_mapping, listed, seconds, text, times_of, whole

MOST = 1000  # limits of a world, and gauges
SHORTEST, LONGEST = 1e-12, 1e6  # seconds that a gauge may take: ratios of them are numbers


def limits(setups: object) -> Iterator[RecordedLimit]:
    """What the machine did by itself, of every backend's world."""
    for backend, setup in _by_backend(setups):
        for entry in _entries(setup.get("limits")):
            bandwidth = seconds(entry.get("bandwidth_bytes_per_second"))
            if bandwidth is not None:
                ranks = len(listed(entry.get("ranks"))) or 1
                kind, at_once = text(entry.get("kind") or ""), entry.get("at_once") is True
                yield RecordedLimit(backend, kind, ranks, at_once, bandwidth)


def gauges(setups: object) -> Iterator[RecordedGauge]:
    """What the machine did in each launch; none in a file of an earlier release."""
    for backend, setup in _by_backend(setups):
        ranks = whole(setup.get("world_size")) or 0
        for entry in _entries(setup.get("gauges")):
            times = tuple(map(_likely, times_of(entry.get("times_seconds"))))
            if any(times):
                yield RecordedGauge(backend, text(entry.get("kind") or ""), ranks, times)


def _likely(launch: Sequence[float]) -> tuple[float, ...]:
    return tuple(time for time in launch if SHORTEST <= time <= LONGEST)


def blocks(series: Sequence[RecordedSeries], setups: object) -> Iterator[str]:
    """The backends whose ranks came to life less often than there are rows of times.

    A launch verifies, and each row of times has one of its own; but where a world can begin only
    once, its blocks stand for launches.
    """
    for backend, setup in _by_backend(setups):
        launches = whole(setup.get("launches"))
        mine = [each for each in series if each.key.backend == backend]
        most = max((len(row.times) for each in mine for row in each.rows), default=0)
        if launches is not None and most > 1 and most >= launches:
            yield backend


def starters(setups: object) -> dict[str, str]:
    """What started the ranks, and how, of every backend's world."""
    found = {}
    for backend, setup in _by_backend(setups):
        how = (text(setup.get(name) or "") for name in ("engine", "start_method"))
        found[f"start of {backend} ranks"] = " ".join(filter(None, how)) or "unknown"
    return found


def _by_backend(setups: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for backend, setup in setups.items() if isinstance(setups, dict) else ():
        if isinstance(setup, dict):
            yield text(backend), setup


def _entries(value: object) -> Iterator[Mapping[str, Any]]:
    return islice(filter(is_mapping, listed(value)), MOST)
