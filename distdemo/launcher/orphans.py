"""What ranks leave behind although it has left their sessions: daemons, and what they started.

A process whose parent has ended becomes a child of the nearest ancestor that asked for such
orphans (prctl(2), PR_SET_CHILD_SUBREAPER; Linux alone). The launcher asks while a guest's ranks
run. What is a child of it afterwards, and was not before, is of no rank any more.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
PATIENCE = 1.0  # seconds in which they have to end once they were killed


class Orphans:
    """Gathers the orphans of this process's descendants, from its making until ``end``."""

    def __init__(self) -> None:
        self._before = set(children(os.getpid()))
        self._asked = _ask(1)

    def end(self) -> None:
        """Kill them with all that they have started, and ask for no more."""
        if not self._asked:
            return
        until = time.monotonic() + PATIENCE
        while (left := self._left()) and time.monotonic() < until:
            for pid in left:
                _kill(pid)
        _ask(0)

    def _left(self) -> list[int]:
        """Children that were not there before and that multiprocessing does not know."""
        known = self._before | _known()
        return [pid for pid in children(os.getpid()) if pid not in known]


def children(pid: int) -> list[int]:
    """The children of a process, those of all its threads; empty where the system does not tell."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _ask(on: int) -> bool:
    """Ask for orphans, or not; whether the system can do that."""
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(SUBREAPER, on, 0, 0, 0) == 0)


def _known() -> set[int]:
    """Processes that multiprocessing looks after: ranks, the forkserver and its like."""
    from multiprocessing import active_children, forkserver, resource_tracker

    helpers = (
        getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None),
        getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None),
    )
    return {pid for pid in (*(each.pid for each in active_children()), *helpers) if pid}


def _kill(pid: int) -> None:
    """Kill a child, after its own children, and take note of its end."""
    for each in (*_descendants(pid), pid):
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield from _descendants(child)
        yield child
