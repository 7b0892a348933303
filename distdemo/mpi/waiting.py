"""How a rank waits: it looks at first without rest, then lets others run between two looks.

Ranks of MPI poll. Where there are more ranks than cores, one that polls without yielding takes
the core from the one that it waits for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from os import sched_yield

SHARED, OWN = 2, 200  # looks without rest: where ranks share cores, where each has its own
RESTLESS = 2.0  # seconds of looks with a yield between them
REST = 1e-4  # seconds between looks after that: what a rank that waits for long costs is small


class Patience:
    """How many looks without rest a rank takes; few, until it is known that it has a core."""

    looks = SHARED


def expect_ranks(here: int) -> None:
    """Take note of how many ranks run on this machine."""
    Patience.looks = OWN if here <= (os.cpu_count() or 1) else SHARED


def done_in_time(test: Callable[[], bool], seconds: float) -> bool:
    """Look until the test is passed; False if that takes longer.

    Args:
        test: whether it is done; goes on with it where the library needs to be called for that.
        seconds: when to give up.
    """
    for _ in range(Patience.looks):
        if test():
            return True
    began = time.monotonic()
    while not test():
        waited = time.monotonic() - began
        if waited > seconds:
            return False
        if waited > RESTLESS:
            time.sleep(REST)
        else:
            sched_yield()
    return True
