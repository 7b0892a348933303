"""How an op starts, waits and ends, whatever it is.

An op that the user waits for is polled with a deadline, so that a rank that never comes ends in an
error, not in a hang. Polling needs MPI's nonblocking form, which at 8 B costs less than 1 µs more
than the blocking one, but from 1 MiB on takes up to twice as long (Open MPI, two ranks). So beyond
``SMALL`` the ranks meet in a nonblocking barrier first, with the deadline; then all are there, and
the blocking form runs. That everybody came is checked in time; a peer that stops in the middle of
such an op, or brings another size, is not. An all_reduce of Intel's MPI takes the nonblocking form
alone at every size: there it is as quick as the blocking one, or quicker (0.6-1.0 of its time from
64 KiB to 4 MiB, two ranks).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.runtime import State, done_in_time, expect, timed_out, translated
from distdemo.mpi.work import DONE, MpiWork, Testable, all_done

SMALL = 1 << 15  # bytes of the largest op that takes the nonblocking form alone

Options: TypeAlias = Any
"""What torch passes along with an op: each has a type of its own."""

Forms: TypeAlias = tuple[Callable[..., MPI.Request], Callable[..., None] | None]
"""An op's nonblocking form, and its blocking one where that may be used."""


class CommunicatorGroup(dist.ProcessGroup):
    """What every op needs: the communicator, the timeout, and the ways to start and to wait.

    Args:
        comm: the group's own communicator.
        seconds: the timeout of every op that is not given one of its own.

    Attributes:
        comm: the communicator; every call of it comes from here.
        ranks: how many there are.
        me: this process's rank in the group.
    """

    supports_coalescing = supports_splitting = False

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        super().__init__(comm.rank, comm.size)  # type: ignore[call-arg]  # without a store
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.comm: Any = comm
        self.ranks, self.me = comm.size, comm.rank
        self._seconds = seconds
        self._batch: list[MpiWork] | None = None
        self._name = ""

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long the ops from now on may take."""
        self._seconds = timeout.total_seconds()

    def shutdown(self) -> None:
        """Give the communicator back, if nothing uses it any more."""
        if self.comm is None or MPI.Is_finalized():
            return
        comm, self.comm = self.comm, None
        if all_done(0.0) and not State.failed:
            comm.Free()

    abort = shutdown

    def getBackendName(self) -> str:  # noqa: N802 - what torch's C++ calls
        """``mpi``."""
        return "mpi"

    def _get_backend(self, device: torch.device) -> Any:  # noqa: ANN401 - torch asks it what it can
        return self

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802 - what torch's C++ calls
        """Torch's name for the group; a group written in Python has to keep it itself."""
        return self._name

    @property
    def group_name(self) -> str:  # type: ignore[override]  # torch's own is a str of another name
        """The same, as torch's Python asks."""
        return self._name

    def go(  # noqa: PLR0913, PLR0917 - a record of them would take longer than MPI does
        self,
        what: str,
        forms: Forms,
        args: tuple[Any, ...],
        opts: Options,
        size: int,
        tensors: Sequence[torch.Tensor] = (),
        after: Callable[[], object] | None = None,
    ) -> dist.Work:
        """Start an op and, unless the user wants to wait by himself, see it through.

        Args:
            what: its name, for errors.
            forms: see there.
            args: of either form.
            opts: torch's options.
            size: in bytes, the same on every rank.
            tensors: what it fills.
            after: what is left to do when MPI is done; holds on to what MPI reads and writes.

        Raises:
            DistBackendError: it failed, or took too long.
        """
        start, blocking = forms
        try:
            if opts.asyncOp:
                return self.handle(what, [start(*args)], tensors, after)
            if blocking is None or size <= SMALL:
                self._wait(start(*args), what, opts, (args, tensors, after))
            else:
                self._wait(self.comm.Ibarrier(), what, opts, None)
                blocking(*args)
        except MPI.Exception as error:
            raise translated(error, what) from error
        if after is not None:
            after()
        return DONE

    def handle(
        self,
        what: str,
        requests: Sequence[Testable],
        tensors: Sequence[torch.Tensor],
        after: Callable[[], object] | None = None,
    ) -> MpiWork:
        """The handle of an op that goes on."""
        work = MpiWork(what, self._seconds, requests, tensors, after)
        if self._batch is not None:
            self._batch.append(work)
        return work

    def all_of(
        self,
        what: str,
        works: Sequence[dist.Work],
        tensors: Sequence[torch.Tensor],
        opts: Options,
    ) -> dist.Work:
        """One handle for several ops."""
        going = [work for work in works if isinstance(work, MpiWork)]
        return self.handle(what, going, tensors) if opts.asyncOp else DONE

    def expect_one_each(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        """Refuse a list that has not a tensor for every rank."""
        expect(
            len(tensors) == self.ranks,
            f"{what} takes a list of {self.ranks} tensors, one a rank, not {len(tensors)}.",
        )

    def _start_coalescing(self, device: torch.device) -> None:
        """From here on several ops make a batch."""
        self._batch = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        """One handle for the batch."""
        works, self._batch = self._batch or [], None
        return self.handle("batch", works, [])

    def _wait(self, request: MPI.Request, what: str, opts: Options, kept: object) -> None:
        test = request.Test
        if test() or test():  # before anything that takes time is asked
            return
        given = opts.timeout.total_seconds()
        seconds = given if given > 0 else self._seconds
        if not done_in_time(test, seconds):
            _abandoned.append((request, kept))
            raise timed_out(what, seconds)


_abandoned: list[object] = []
"""Ops that timed out: MPI may write to their buffers as long as the process lives."""
