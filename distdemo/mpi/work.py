"""The handle of a pending op, kept alive until MPI is done with it."""

from __future__ import annotations

import atexit
import math
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.profiling import ProfilerEvent
from distdemo.mpi.runtime import done_in_time, poll, timed_out, translated

pending: dict[MpiWork, None] = {}
"""Pending ops, oldest first. MPI uses their buffers even if the handle was dropped."""


class Testable(Protocol):
    """An MPI request, or an op that is part of another."""

    def Test(self, status: MPI.Status | None = None, /) -> bool:  # MPI's name
        """Poll once; return True if it is done."""


class MpiWork(dist.Work):
    """One nonblocking op.

    Args:
        what: Name of the op, ``all_reduce``.
        seconds: Default timeout of ``wait``.
        requests: MPI requests, or ops that it consists of; done when all are.
        tensors: Output tensors of the user, the value of the future.
        after: Callback when MPI is done; keeps MPI's buffers alive.
        event: Event in the profile, if there is a profiler.
    """

    def __init__(
        self,
        what: str,
        seconds: float,
        requests: Sequence[Testable],
        tensors: Sequence[torch.Tensor],
        after: Callable[[], object] | None = None,
        event: ProfilerEvent | None = None,
    ) -> None:
        super().__init__()
        self._what = what
        self._seconds = seconds
        self._requests = list(requests)
        self._tensors = list(tensors)
        self._after = after
        self._event = event
        self._lock = threading.Lock()  # a progress thread polls too
        self._done = False
        self._error: Exception | None = None
        self._future: Any = None
        self._unresolved: Any = None  # the future, until it has its value
        self._status = MPI.Status() if what == "recv" else None
        # Release finished ops that are no longer polled: two at most, so that it costs little.
        for work in list(pending)[:2] if len(pending) > 8 else ():
            work.advance()
        pending[self] = None

    def advance(self) -> bool:
        """Poll once; return True and resolve the future if the op succeeded or failed."""
        done = self._poll()
        if done and self._unresolved is not None:
            self._resolve()
        return done

    def Test(self, status: MPI.Status | None = None) -> bool:  # MPI's name
        """Poll once, as part of another op; return True if it succeeded.

        Raises:
            Exception: The op failed.
        """
        if not self._poll():  # doesn't resolve the future: the other op holds its lock
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the op.

        Args:
            timeout: Timeout; by default, or if zero, that of the group.

        Raises:
            DistBackendError: It failed or timed out.
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
        """Wait on the host, as there is no stream to do so."""
        self.wait()

    block_current_stream = synchronize
    is_completed = advance

    def is_success(self) -> bool:
        """Return True if the op succeeded."""
        return self.advance() and self._error is None

    def exception(self) -> Exception | None:
        """Return the op's error, or None."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the output tensors."""
        return self._tensors

    def source_rank(self) -> int:
        """Return the sender's rank in the group."""
        if self._status is None:
            raise RuntimeError("only a receive has a source rank")
        return self._status.Get_source()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a future of the output tensors, which a thread resolves.

        If MPI doesn't support calls from several threads, wait for the op instead.
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
            if self._is_done():  # since the check above
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
            except Exception as error:  # wait() raises it
                self._error = error
            if self._event is not None:
                self._event.end()
            self._done = True
            self._after = self._event = None
            self._requests.clear()
            pending.pop(self, None)
        return True

    def _is_done(self) -> bool:
        return self._done

    def _resolve(self) -> None:
        """Resolve the future once. Not under the lock: callbacks may call any method here."""
        with self._lock:
            future = self._unresolved
            self._unresolved = None
        if future is None:
            return
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._tensors)


class DoneWork(dist.Work):
    """The handle of an op that is already done."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True."""
        return True

    is_completed = is_success = wait


DONE = DoneWork()


def all_done(seconds: float) -> bool:
    """Wait for all pending ops; return False on timeout."""

    def advance_all() -> bool:
        for work in list(pending):
            work.advance()
        return not pending

    return done_in_time(advance_all, seconds)


class _Progress:
    """A thread that polls ops with futures: MPI makes progress only when it is called.

    It runs only while there are such ops, so programs without futures pay nothing.
    """

    POLLS = 20  # without a pause
    YIELD_S = 0.002  # of polling with yields
    SLEEP_S = 5e-5  # between polls after that
    IDLE_S = 0.05  # that the thread waits for a next op before it exits
    EXIT_TIMEOUT_S = 1.0  # for the thread at exit

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: list[MpiWork] = []
        self._thread: threading.Thread | None = None
        self._exiting = False
        self._process = 0  # owner of the thread: a fork has no thread, and maybe a locked lock
        atexit.register(self._exit)

    def add(self, work: MpiWork) -> None:
        with self._changed:
            self._watched.append(work)
            self._changed.notify()
            if self._thread is None:
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="mpi-futures", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched or self._exiting, self.IDLE_S)
                if self._exiting or not self._watched:
                    self._thread = None
                    return
            while self._watched and not self._exiting:
                poll(self._advance_any, math.inf, self.POLLS, self.YIELD_S, self.SLEEP_S)

    def _advance_any(self) -> bool:
        """Poll all ops once; return True if one is done or the process exits."""
        done = [work for work in list(self._watched) if work.advance()]
        with self._changed:
            self._watched = [work for work in self._watched if work not in done]
        return bool(done) or self._exiting

    def _exit(self) -> None:
        """Stop the thread: torch's C++ must not run while the interpreter shuts down."""
        if self._process not in (0, os.getpid()):
            return
        with self._changed:
            self._exiting = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(self.EXIT_TIMEOUT_S)


_progress = _Progress()
