"""What a rank of ``bench`` tells the launcher. Frozen; no torch."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.bench.plan import Visit
from distdemo.bench.yardsticks import Harness, Limit, Overlap
from distdemo.demo.holdings import HOST

Look = tuple[float | None, ...]
"""Seconds by the order of ``yardsticks.GAUGES``; None: this rank could not measure it."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """What one rank found before the first visit.

    Attributes:
        way: how the ranks are aligned.
        meeting: seconds that a common start takes; None unless that was asked for.
        harness: what the loop costs; likewise.
        limits: what the machine does; empty unless that was asked for, and on all ranks but 0.
    """

    way: str
    meeting: float | None = None
    harness: Harness | None = None
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """What one rank found in one visit.

    Attributes:
        visit: which.
        arrived: when it came to each start; 64-bit floats, seconds of the monotonic clock.
        started: when it was let go; likewise.
        took: how long each call took; likewise.
        clock: what timed the calls.
        checked: elements that were compared.
        wrong: how many of them were wrong.
        hidden: what computing hides of the call; None unless that was asked for.
    """

    visit: Visit
    arrived: bytes
    started: bytes
    took: bytes
    clock: str = HOST
    checked: int = 0
    wrong: int = 0
    hidden: Overlap | None = None


@dataclass(frozen=True, slots=True)
class Looks:
    """What one rank saw of the machine itself in one launch.

    Attributes:
        launch: which.
        seen: an entry each time that all ranks looked.
    """

    launch: int
    seen: tuple[Look, ...]
