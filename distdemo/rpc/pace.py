"""How far a training is, told to the launcher now and then: for the bar, and as a sign of life."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distdemo.rpc.records import Progress

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

INTERVAL = 0.2  # seconds at least between two words


class Pace:
    """The steps of one training.

    Args:
        rank: of the worker that trains.
        steps: how many there are.
        remote: over RPC, or in one process.
    """

    def __init__(self, rank: Rank, steps: int, *, remote: bool) -> None:
        self._rank = rank
        self._steps = steps
        self._remote = remote
        self._told = time.monotonic()

    def done(self, steps: int) -> None:
        """So many steps are done. Cheap enough to be called after each."""
        now = time.monotonic()
        if now - self._told >= INTERVAL:
            self._told = now
            self._rank.tell(Progress(steps, self._steps, remote=self._remote))
