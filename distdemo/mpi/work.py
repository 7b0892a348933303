"""The handle of an op that goes on: done when MPI says so, and kept alive until then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi import progress
from distdemo.mpi.errors import late, translated
from distdemo.mpi.runtime import State
from distdemo.mpi.waiting import done_in_time

pending: dict[MpiWork, None] = {}
"""Every op under way, the oldest first: MPI still uses its buffers, whoever dropped its handle."""


class Testable(Protocol):
    """A request of MPI, or an op that is part of another."""

    def Test(self, status: MPI.Status | None = None, /) -> bool:  # noqa: N802 - MPI's name
        """Look once; whether it is done."""


class MpiWork(dist.Work):
    """One op that MPI was asked to do without waiting for it.

    Args:
        what: the op, ``all_reduce``.
        rank: this process's in the world.
        seconds: how long ``wait`` waits if it is not told.
        requests: what MPI gave for it, or ops that it is made of; done when all are.
        tensors: the user's tensors that the op fills, the value of its future.
        after: what is left to do when MPI is done; holds on to what MPI reads and writes.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - as in Engine.go
        self,
        what: str,
        rank: int,
        seconds: float,
        requests: Sequence[Testable],
        tensors: Sequence[torch.Tensor],
        after: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self._what, self._rank, self._seconds = what, rank, seconds
        self._requests = list(requests)
        self._tensors = list(tensors)
        self._after = after
        self._lock = threading.Lock()  # a progress thread looks too
        self._done = False
        self._error: Exception | None = None
        self._future: Any = None
        self._owed: Any = None  # the future, as long as it has not come
        self._status = MPI.Status() if what == "recv" else None
        _look_at_oldest()
        pending[self] = None

    def advance(self) -> bool:
        """Look once; whether the op is over, well or not. If so, its future comes."""
        over = self._look()
        if over and self._owed is not None:
            self._resolve()
        return over

    def Test(self, status: MPI.Status | None = None) -> bool:  # noqa: N802 - MPI's name
        """Look once, as part of another op; whether it went well.

        Raises:
            Exception: it did not.
        """
        if not self._look():  # the future can wait: the other op holds its lock
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is over.

        Args:
            timeout: how long; nothing or zero: as long as its group was told.

        Raises:
            DistBackendError: it failed, or took longer.
        """
        if not self._done or self._owed is not None:
            seconds = timeout.total_seconds() if timeout else 0.0
            seconds = seconds if seconds > 0 else self._seconds
            if not done_in_time(self.advance, seconds):
                State.failed = True
                raise late(self._what, self._rank, seconds)
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
        """A future of the tensors that it fills; a thread sees to it that it comes."""
        with self._lock:
            if self._future is None:
                self._future = self._owed = torch.futures.Future()
        if not self.advance():
            progress.see_to(self)
        return self._future

    def _look(self) -> bool:
        if self._done:
            return True
        with self._lock:
            if self._over():  # by now
                return True
            try:
                if not self._tested():
                    return False
                if self._after is not None:
                    self._after()
            except MPI.Exception as error:
                self._fail(translated(error, self._what, self._rank))
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                self._fail(error)
            self._end()
        return True

    def _over(self) -> bool:
        return self._done

    def _tested(self) -> bool:
        while self._requests:
            if not self._requests[-1].Test(self._status):
                return False
            self._requests.pop()
        return True

    def _fail(self, error: Exception) -> None:
        State.failed = True
        self._error = error

    def _end(self) -> None:
        self._done = True
        self._after = None
        self._requests.clear()
        pending.pop(self, None)

    def _resolve(self) -> None:
        """Let the future come, once; without the lock, as callbacks may ask for anything here."""
        with self._lock:
            future, self._owed = self._owed, None
        if future is None:
            return
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._tensors)


class Done(dist.Work):
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


DONE = Done()


def _look_at_oldest() -> None:
    """Let go of ops that ended without anybody looking: two at most, so that it costs little."""
    for work in list(pending)[:2] if len(pending) > 8 else ():
        work.advance()


def all_done(seconds: float) -> bool:
    """Wait for every op under way; whether all ended in that time."""

    def look() -> bool:
        for work in list(pending):
            work.advance()
        return not pending

    return done_in_time(look, seconds)
