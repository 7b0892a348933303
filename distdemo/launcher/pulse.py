"""Whether processes are at work: the processor time of whole sessions, from /proc.

A program of the user's own says nothing of its progress. What tells one that computes from one
that waits forever is the time that it and its children use of the processor (proc_pid_stat(5)).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

LEAST = 0.01  # of one core: what uses less is not at work, but wakes now and then


class Pulse:
    """The processor time of some sessions since it was last looked at.

    Args:
        sessions: their numbers; may grow.
        read: the seconds that all their processes have used so far; None where nobody tells.
    """

    def __init__(
        self,
        sessions: Collection[int],
        read: Callable[[Collection[int]], float | None] | None = None,
    ) -> None:
        self._sessions = sessions
        self._read = used if read is None else read
        self._looked = time.monotonic()
        self._before = self._read(sessions)

    def beats(self) -> bool:
        """Whether they have been at work since the last look; True where nobody tells.

        A process that has ended since takes its time out of the sum, so less is work, too.
        """
        now, total = time.monotonic(), self._read(self._sessions)
        passed, before = now - self._looked, self._before
        self._looked, self._before = now, total
        if total is None or before is None:
            return True
        return abs(total - before) > LEAST * passed


def used(sessions: Collection[int]) -> float | None:
    """Seconds of the processor that all processes of these sessions have used so far."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    ticks = 0
    for name in names:
        with suppress(OSError, ValueError, IndexError):  # it ended while we looked
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                ticks += sum(map(int, fields[11:15]))  # its own, and of children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")
