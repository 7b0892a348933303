"""How long the machine's own transports are measured, and what is made of the times.

Counts are not fixed: whoever sends looks at the clock, and tells the other when it is over.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from distdemo.bench.summary import quantile

PATIENCE = 5.0  # seconds without a byte after which a peer is given up
MESSAGE = 4 << 20  # bytes: with a copy at each end more than most cores' own cache
BURST = 2  # messages that are sent before the receiver says that it has it all
FEWEST = 3  # bursts, however short the time is
FAST = 0.1
"""A limit is what the fastest tenth takes: what else runs here can make it look lower, nothing can
make it look higher."""
STRETCHES, LONG_STRETCHES = 24, 3
"""Into so many a measurement of all ranks at once is cut. Where ranks take turns on a core they are
longer than a turn: in a short one a rank has the core or has it not."""
RAMP = 0.1  # share of a measurement of all at once that passes first, as some ranks begin later
TAIL = 0.03  # seconds that each goes on sending for those who began later

Step = Callable[[], int]
"""Sends what can be sent, receives what has come, waits a little if neither: bytes received."""


class LostError(OSError):
    """The other rank fell silent, or left."""


def fastest(act: Callable[[], object], seconds: float) -> float:
    """Seconds of an act that is repeated for so long, ``FEWEST`` times at least: undisturbed."""
    act()  # the first one touches memory and opens windows
    took: list[float] = []
    until = perf_counter() + seconds
    while (began := perf_counter()) < until or len(took) < FEWEST:
        act()
        took.append(perf_counter() - began)
    return quantile(sorted(took), FAST)


def flow(step: Step, seconds: float, *, crowded: bool) -> float:
    """Bytes a second that this rank receives while all ranks send and receive.

    Args:
        step: does a little.
        seconds: of the whole.
        crowded: ranks take turns on the cores.
    """
    _during(step, perf_counter() + RAMP * seconds)
    count = LONG_STRETCHES if crowded else STRETCHES
    found = sorted(_stretch(step, (1 - RAMP) * seconds / count) for _ in range(count))
    _during(step, perf_counter() + TAIL)
    return quantile(found, 1 - FAST)


def _stretch(step: Step, seconds: float) -> float:
    began = perf_counter()
    received = _during(step, began + seconds)
    return received / (perf_counter() - began)


def _during(step: Step, until: float) -> int:
    received = 0
    while perf_counter() < until:
        received += step()
    return received


def drain(step: Step, over: Callable[[], bool]) -> None:
    """Receive what others still send, until that is over.

    Raises:
        LostError: nothing more comes, though it is not over.
    """
    until = perf_counter() + PATIENCE
    while not over():
        step()
        if perf_counter() > until:
            raise LostError("the rank on the left does not end")
