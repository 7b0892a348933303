"""Start an op, wait for it and finish it.

An op that the user waits for is polled with a deadline, so that a missing rank causes an error,
not a hang. Polling needs MPI's nonblocking form. At 8 B it costs less than 1 µs more than the
blocking one, but from 1 MiB on it takes up to twice as long (Open MPI, two ranks). So beyond
``SMALL`` the ranks first pass a nonblocking barrier with the deadline, then call the blocking
form. The deadline covers the arrival of all ranks. It doesn't cover a peer that stops during the
op, or passes another size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.runtime import State, done_in_time, expect, timed_out, translated

SMALL = 1 << 15  # bytes of the largest op without a barrier and the blocking form

Options: TypeAlias = Any
"""Torch's options of an op. Each op has its own type."""

Forms: TypeAlias = tuple[Callable[..., MPI.Request], Callable[..., None] | None]
"""An op's nonblocking form, and its blocking one if that may be used."""
pending: dict[MpiWork, None] = {}
"""Pending ops, oldest first. MPI uses their buffers even if the handle was dropped."""


class CommunicatorGroup(dist.ProcessGroup):
    """Base of the process group: its communicator, its timeout, and starting and waiting.

    Args:
        comm: Communicator of this group alone.
        seconds: Default timeout of an op.

    Attributes:
        comm: Communicator; only this class and its subclasses call it.
        ranks: Number of ranks in the group.
        me: This process's rank in the group.
    """

    supports_coalescing = supports_splitting = False

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        super().__init__(comm.rank, comm.size)  # type: ignore[call-arg]  # without a store
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.comm: Any = comm
        self.ranks = comm.size
        self.me = comm.rank
        self._seconds = seconds
        self._name = ""

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of later ops."""
        self._seconds = timeout.total_seconds()

    def shutdown(self) -> None:
        """Free the communicator, unless ops are pending or failed."""
        if self.comm is None or MPI.Is_finalized():
            return
        comm = self.comm
        self.comm = None
        for work in list(pending):
            work.test()
        if not pending and not State.failed:
            comm.Free()

    abort = shutdown

    def getBackendName(self) -> str:  # what torch's C++ calls
        """Return ``mpi``."""
        return "mpi"

    def _get_backend(self, device: torch.device) -> Any:
        return self

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:  # what torch's C++ calls
        """Return torch's name for the group; a group written in Python has to store it."""
        return self._name

    @property
    def group_name(self) -> str:  # type: ignore[override]  # torch's own is a str of another name
        """Name of the group, for torch's Python code."""
        return self._name

    def start(
        self,
        what: str,
        forms: Forms,
        args: tuple[Any, ...],
        opts: Options,
        size: int,
        tensors: Sequence[torch.Tensor] = (),
        after: Callable[[], object] | None = None,
    ) -> dist.Work:
        """Start an op; wait for it unless it is asynchronous.

        Args:
            what: Name of the op, for errors.
            forms: Nonblocking and blocking form.
            args: Arguments of both forms.
            opts: Torch's options.
            size: Bytes, the same on every rank.
            tensors: Output tensors.
            after: Callback when MPI is done; keeps MPI's buffers alive.

        Raises:
            DistBackendError: It failed or timed out.
        """
        nonblocking, blocking = forms
        try:
            if opts.asyncOp:
                return MpiWork(what, self._seconds, nonblocking(*args), tensors, after)
            if blocking is None or size <= SMALL:
                self._wait(nonblocking(*args), what, opts, (args, tensors, after))
            else:
                self._wait(self.comm.Ibarrier(), what, opts, None)
                blocking(*args)
        except MPI.Exception as error:
            raise translated(error, what) from error
        if after is not None:
            after()
        return DONE

    def expect_one_each(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        """Raise `ValueError` unless a list has one tensor per rank."""
        expect(
            len(tensors) == self.ranks,
            f"{what} needs a list of {self.ranks} tensors, one per rank, not {len(tensors)}.",
        )

    def _wait(self, request: MPI.Request, what: str, opts: Options, kept: object) -> None:
        test = request.Test
        if test() or test():  # before slower calls
            return
        given = opts.timeout.total_seconds()
        seconds = given if given > 0 else self._seconds
        if not done_in_time(test, seconds):
            _abandoned.append((request, kept))
            raise timed_out(what, seconds)


_abandoned: list[object] = []
"""Ops that timed out. MPI may write to their buffers until the process exits."""


# ------------------------------------------------------------------------------------------ handles


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
            work.test()
        pending[self] = None

    def is_completed(self) -> bool:
        """Poll once; return True if the op succeeded or failed."""
        return self.test()

    def test(self) -> bool:
        """Do the same, unseen by the sanitizer: the program doesn't ask."""
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
