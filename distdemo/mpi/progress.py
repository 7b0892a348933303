"""A thread that looks after ops whose future somebody holds: MPI itself goes on only when called.

It runs while there are such ops and hardly longer, so a program that waits by itself pays nothing.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from os import sched_yield
from typing import Protocol

from mpi4py import MPI

LOOKS = 20  # looks without rest
EAGER = 0.002  # seconds of looks with no more than a yield between them
REST = 5e-5  # seconds between looks after that
LINGER = 0.05  # seconds that the thread waits for a next op before it ends
PARTING = 1.0  # seconds that the process waits for the thread at exit


class Advancing(Protocol):
    """An op under way."""

    def advance(self) -> bool:
        """Look once; whether it is over."""

    def wait(self) -> bool:
        """Wait until it is over."""


class _Minder:
    """The ops that are looked after, and the thread that does so."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._watched: list[Advancing] = []
        self._thread: threading.Thread | None = None
        self._leaving = False
        self._process = 0  # whose thread it is: one that is forked has none, and maybe the lock

    def add(self, work: Advancing) -> None:
        with self._news:
            self._watched.append(work)
            self._news.notify()
            if self._thread is None:
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="mpi-futures", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """End the thread: torch's C++ must not meet a Python that is going down."""
        if self._process not in (0, os.getpid()):
            return
        with self._news:
            self._leaving = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join(PARTING)

    def _run(self) -> None:
        while self._wait_for_work():
            self._see_through()

    def _wait_for_work(self) -> bool:
        with self._news:
            self._news.wait_for(lambda: self._watched or self._leaving, LINGER)
            go_on = bool(self._watched) and not self._leaving
            if not go_on:
                self._thread = None
            return go_on

    def _see_through(self) -> None:
        """Look at all until none is left."""
        looks, began = 0, time.monotonic()
        while self._watched and not self._leaving:
            over = [work for work in list(self._watched) if work.advance()]
            with self._news:
                self._watched = [work for work in self._watched if work not in over]
            looks, began = (0, time.monotonic()) if over else (looks + 1, began)
            if looks > LOOKS:
                sched_yield() if time.monotonic() - began < EAGER else time.sleep(REST)


_minder = _Minder()
atexit.register(_minder.leave)


def see_to(work: Advancing) -> None:
    """Make sure that an op comes to its end though nobody waits for it.

    Where MPI takes no calls from a second thread the op is waited for here instead.
    """
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        _minder.add(work)
    else:
        work.wait()
