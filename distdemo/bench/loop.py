"""The timed loop: a common start, a look at the clock, the call, another look; nothing else.

Everything else is done before or after: the call is bound to its buffers, the lists that take the
times are as long as they will be, and no garbage is collected meanwhile. What the loop itself
costs is measured with a call that does nothing (``harness``).
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from distdemo.bench.summary import median
from distdemo.bench.yardsticks import Harness
from distdemo.demo.clock import EventClock
from distdemo.demo.records import EVENTS, HOST

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

PROBES = 2000  # iterations that the loop's own cost is found with


@dataclass(frozen=True, slots=True)
class Times:
    """One rank's, an entry an iteration; seconds, the first two on the machine's monotonic clock.

    Attributes:
        arrived: when it came to the start.
        started: when it was let go.
        took: how long the call took.
        clock: what timed the call.
    """

    arrived: array[float]
    started: array[float]
    took: array[float]
    clock: str = HOST

    @property
    def pace(self) -> float:
        """Seconds of an iteration, from the first arrival to the end of the last call."""
        count = len(self.took)
        return (self.started[-1] + self.took[-1] - self.arrived[0]) / count if count else 0.0


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block no garbage is collected."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def timed(
    rank: Rank,
    call: Callable[[], object],
    count: int,
    meet: Callable[[], None],
    *,
    on_host: bool = False,
) -> Times:
    """Collective: call so often, each time from a common start.

    Args:
        rank: this rank; its device decides what tells the time.
        call: returns when the operation is done (on a GPU: when it was queued).
        count: iterations.
        meet: brings all ranks to a common start.
        on_host: the host tells the time in any case: nothing is done on a GPU.
    """
    with undisturbed():
        return (
            _on_host(call, count, meet)
            if on_host or rank.device == "cpu"
            else _on_gpu(rank, call, count, meet)
        )


def _on_host(call: Callable[[], object], count: int, meet: Callable[[], None]) -> Times:
    arrived, started, ended = (array("d", bytes(8 * count)) for _ in range(3))
    for turn in range(count):
        arrived[turn] = perf_counter()
        meet()
        start = perf_counter()
        call()
        ended[turn] = perf_counter()
        started[turn] = start
    took = array("d", (end - start for end, start in zip(ended, started, strict=True)))
    return Times(arrived, started, took)


def _on_gpu(rank: Rank, call: Callable[[], object], count: int, meet: Callable[[], None]) -> Times:
    """The GPU stamps an event before and one after the call; the stream is idle at the start."""
    clock = EventClock()
    arrived, started = (array("d", bytes(8 * count)) for _ in range(2))
    marks: list[tuple[Any, Any]] = []
    for turn in range(count):
        rank.synchronize()
        arrived[turn] = perf_counter()
        meet()
        started[turn] = perf_counter()
        first = clock.mark()
        call()
        marks.append((first, clock.mark()))
    rank.synchronize()
    return Times(arrived, started, array("d", (clock.between(*pair) for pair in marks)), EVENTS)


def harness() -> Harness:
    """What the loop costs an iteration, found with a call that does nothing and nobody to meet."""
    with undisturbed():
        began = perf_counter()
        times = _on_host(_nothing, PROBES, _nothing)
        whole = (perf_counter() - began) / PROBES
    inside = median(times.took)
    return Harness(inside, max(0.0, whole - inside), PROBES)


def _nothing() -> None:
    pass
