"""The handle of a pending op, kept alive until MPI is done with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.runtime import done_in_time, timed_out, translated

pending: dict[MpiWork, None] = {}
"""Pending ops, oldest first. MPI uses their buffers even if the handle was dropped."""


class MpiWork(dist.Work):
    """One nonblocking op.

    Args:
        what: Name of the op, ``all_reduce``.
        seconds: Default timeout of ``wait``.
        request: Request of MPI.
        tensors: Output tensors of the user, the value of the future.
        after: Callback when MPI is done; keeps MPI's buffers alive.
    """

    def __init__(
        self,
        what: str,
        seconds: float,
        request: MPI.Request,
        tensors: Sequence[torch.Tensor],
        after: Callable[[], object] | None,
    ) -> None:
        super().__init__()
        self._what = what
        self._seconds = seconds
        self._request = request
        self._tensors = list(tensors)
        self._after = after
        self._lock = threading.Lock()  # the thread of a future polls, too
        self._done = False
        self._error: Exception | None = None
        self._future: Any = None
        self._status = MPI.Status() if what == "recv" else None
        # Release finished ops that are no longer polled: two at most, so that it costs little.
        for work in list(pending)[:2] if len(pending) > 8 else ():
            work.is_completed()
        pending[self] = None

    def is_completed(self) -> bool:
        """Poll once; return True if the op succeeded or failed."""
        with self._lock:
            if not self._done:
                self._poll()
            return self._done

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the op.

        Args:
            timeout: Timeout; by default, or if zero, that of the group.

        Raises:
            DistBackendError: It failed or timed out.
        """
        seconds = timeout.total_seconds() if timeout else self._seconds
        if not done_in_time(self.is_completed, seconds):
            raise timed_out(self._what, seconds)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait on the host, as there is no stream to do so."""
        self.wait()

    block_current_stream = synchronize

    def is_success(self) -> bool:
        """Return True if the op succeeded."""
        return self.is_completed() and self._error is None

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

        MPI makes progress only when it is called. If it doesn't support calls from several threads,
        wait for the op here.
        """
        if self._future is None:
            self._future = torch.futures.Future()
            if self.is_completed() or MPI.Query_thread() != MPI.THREAD_MULTIPLE:
                self._resolve()
            else:
                threading.Thread(target=self._resolve, name="mpi-future").start()
        return self._future

    def _resolve(self) -> None:
        """Wait for the op and resolve its future."""
        try:
            self.wait()
        except dist.DistError as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(self._tensors)

    def _poll(self) -> None:
        try:
            if not self._request.Test(self._status):
                return
            if self._after is not None:
                self._after()
        except MPI.Exception as error:
            self._error = translated(error, self._what)
        self._done = True
        self._after = None
        pending.pop(self, None)


class DoneWork(dist.Work):
    """The handle of an op that is already done."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True."""
        return True

    is_completed = is_success = wait


DONE = DoneWork()
