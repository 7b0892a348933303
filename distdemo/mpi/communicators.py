"""Communicators for groups: each its own, so that no message of one is taken for another's.

Collective: every rank of a new group, and nobody else, calls these, in the same order.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta

from mpi4py import MPI

from distdemo.mpi import runtime
from distdemo.mpi.errors import late
from distdemo.mpi.waiting import done_in_time, expect_ranks

_control: list[MPI.Intracomm] = []
"""The world once more, for the messages that make groups."""


def of_world(timeout: timedelta) -> MPI.Intracomm:
    """A communicator of all ranks.

    Raises:
        DistBackendError: not all came in time.
    """
    runtime.State.patience = timeout.total_seconds()
    if not _control:
        _control.append(_copy(timeout))
        here = _control[0].Split_type(MPI.COMM_TYPE_SHARED)  # all have come by now
        expect_ranks(here.size)
        here.Free()
    return _copy(timeout)


def of_some(ranks: Sequence[int], name: str, timeout: timedelta) -> MPI.Intracomm:
    """A communicator of some ranks of the world, numbered in this order.

    MPI would wait for ever for one that does not come, so they meet before, with a deadline.

    Raises:
        DistBackendError: not all came in time.
    """
    tag = zlib.crc32(name.encode()) % 32768  # every MPI library has as many tags
    _meet(ranks, tag, timeout.total_seconds())
    world = _control[0]
    group = world.Get_group().Incl(list(ranks))
    try:
        return world.Create_group(group, tag)
    finally:
        group.Free()


def _copy(timeout: timedelta) -> MPI.Intracomm:
    copy, request = MPI.COMM_WORLD.Idup()
    _wait_for(request, timeout.total_seconds())
    return copy


def _meet(ranks: Sequence[int], tag: int, seconds: float) -> None:
    """A barrier of some ranks: in round k each hears from the one 2^k places before it."""
    world, me, many = _control[0], list(ranks).index(_control[0].rank), len(ranks)
    step = 1
    while step < many:
        to, source = ranks[(me + step) % many], ranks[(me - step) % many]
        sent = world.Isend((b"", MPI.BYTE), to, tag)
        _wait_for(world.Irecv((bytearray(), MPI.BYTE), source, tag), seconds)
        _wait_for(sent, seconds)
        step *= 2


def _wait_for(request: MPI.Request, seconds: float) -> None:
    if not done_in_time(request.Test, seconds):
        runtime.State.failed = True
        raise late("making a process group", MPI.COMM_WORLD.rank, seconds)
