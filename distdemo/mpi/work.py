"""The handle of an op that goes on: done when MPI says so, and kept alive until then."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from os import sched_yield
from typing import Any, Protocol

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.runtime import done_in_time, timed_out, translated

pending: dict[MpiWork, None] = {}
"""Every op under way, the oldest first: MPI uses its buffers even if its handle was dropped."""


class Testable(Protocol):
    """A request of MPI, or an op that is part of another."""

    def Test(self, status: MPI.Status | None = None, /) -> bool:  # noqa: N802 - MPI's name
        """Poll once; whether it is done."""


class MpiWork(dist.Work):
    """One op that MPI was asked to do without waiting for it.

    Args:
        what: the op, ``all_reduce``.
        seconds: how long ``wait`` waits if it is not told.
        requests: what MPI gave for it, or ops that it is made of; done when all are.
        tensors: the user's tensors that the op fills, the value of its future.
        after: what is left to do when MPI is done; holds on to what MPI reads and writes.
    """

    def __init__(
        self,
        what: str,
        seconds: float,
        requests: Sequence[Testable],
        tensors: Sequence[torch.Tensor],
        after: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self._what, self._seconds = what, seconds
        self._requests = list(requests)
        self._tensors = list(tensors)
        self._after = after
        self._lock = threading.Lock()  # a progress thread polls too
        self._done = False
        self._error: Exception | None = None
        self._future: Any = None
        self._unresolved: Any = None  # the future, until it has its value
        self._status = MPI.Status() if what == "recv" else None
        # Let go of ops that ended without anybody polling: two at most, so that it costs little.
        for work in list(pending)[:2] if len(pending) > 8 else ():
            work.advance()
        pending[self] = None

    def advance(self) -> bool:
        """Poll once; whether the op is over, well or not. If so, its future is resolved."""
        over = self._poll()
        if over and self._unresolved is not None:
            self._resolve()
        return over

    def Test(self, status: MPI.Status | None = None) -> bool:  # noqa: N802 - MPI's name
        """Poll once, as part of another op; whether it went well.

        Raises:
            Exception: it did not.
        """
        if not self._poll():  # the future can wait: the other op holds its lock
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is over.

        Args:
            timeout: how long; nothing or zero: the timeout of its group.

        Raises:
            DistBackendError: it failed, or took longer.
        """
        if not self._done or self._unresolved is not None:
            seconds = timeout.total_seconds() if timeout else 0.0
            seconds = seconds if seconds > 0 else self._seconds
            if not done_in_time(self.advance, seconds):
                raise timed_out(self._what, seconds)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait, as there is no stream that could do so."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait, as there is no stream that could do so."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over."""
        return self.advance()

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self.advance() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong; None if nothing did so far."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that it filled."""
        return self._tensors

    def source_rank(self) -> int:
        """Whom a message came from, counted in its group."""
        if self._status is None:
            raise RuntimeError("only an op that receives has a source")
        return self._status.Get_source()

    _source_rank = source_rank

    def get_future(self) -> Any:  # noqa: ANN401 - torch's own, typed nowhere
        """A future of the tensors that it fills; a thread sees to it that it is resolved.

        Where MPI takes no calls from a second thread, the op is waited for here instead.
        """
        with self._lock:
            if self._future is None:
                self._future = self._unresolved = torch.futures.Future()
        if not self.advance():
            if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
                _progress.add(self)
            else:
                self.wait()
        return self._future

    def _poll(self) -> bool:
        if self._done:
            return True
        with self._lock:
            if self._is_done():  # by now
                return True
            try:
                while self._requests:
                    if not self._requests[-1].Test(self._status):
                        return False
                    self._requests.pop()
                if self._after is not None:
                    self._after()
            except MPI.Exception as error:
                self._error = translated(error, self._what)
            except Exception as error:  # noqa: BLE001 - the one that waits gets it
                self._error = error
            self._done = True
            self._after = None
            self._requests.clear()
            pending.pop(self, None)
        return True

    def _is_done(self) -> bool:
        return self._done

    def _resolve(self) -> None:
        """Resolve the future, once; without the lock, as callbacks may ask for anything here."""
        with self._lock:
            future, self._unresolved = self._unresolved, None
        if future is None:
            return
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._tensors)


class DoneWork(dist.Work):
    """The handle of an op that was over before it was handed out."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Nothing to wait for."""
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True

    def is_success(self) -> bool:
        """It was one."""
        return True


DONE = DoneWork()


def all_done(seconds: float) -> bool:
    """Wait for every op under way; whether all ended in that time."""

    def poll() -> bool:
        for work in list(pending):
            work.advance()
        return not pending

    return done_in_time(poll, seconds)


class _Progress:
    """A thread that polls ops whose future somebody holds: MPI goes on only when it is called.

    It runs while there are such ops and hardly longer, so a program that waits by itself pays
    nothing.
    """

    POLLS = 20  # without a pause
    YIELDING = 0.002  # seconds of polls with no more than a yield between them
    PAUSE = 5e-5  # seconds between polls after that
    LINGER = 0.05  # seconds that the thread waits for a next op before it ends
    PARTING = 1.0  # seconds that the process waits for the thread at exit

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._watched: list[MpiWork] = []
        self._thread: threading.Thread | None = None
        self._leaving = False
        self._process = 0  # whose thread it is: a forked process has none, and maybe the lock
        atexit.register(self._leave)

    def add(self, work: MpiWork) -> None:
        with self._news:
            self._watched.append(work)
            self._news.notify()
            if self._thread is None:
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="mpi-futures", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._watched or self._leaving, self.LINGER)
                if self._leaving or not self._watched:
                    self._thread = None
                    return
            polls, began = 0, time.monotonic()
            while self._watched and not self._leaving:
                over = [work for work in list(self._watched) if work.advance()]
                with self._news:
                    self._watched = [work for work in self._watched if work not in over]
                polls, began = (0, time.monotonic()) if over else (polls + 1, began)
                if polls > self.POLLS and time.monotonic() - began > self.YIELDING:
                    time.sleep(self.PAUSE)
                elif polls > self.POLLS:
                    sched_yield()

    def _leave(self) -> None:
        """End the thread: torch's C++ must not meet a Python that is going down."""
        if self._process not in (0, os.getpid()):
            return
        with self._news:
            self._leaving = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join(self.PARTING)


_progress = _Progress()
