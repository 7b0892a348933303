"""Register this package as torch's backend ``mpi``, on a torch that was built without MPI.

``Backend.register_backend`` can't register that name: torch has a separate code path for ``mpi``,
without store, rank and world size, which calls ``ProcessGroupMPI.create(ranks)``, a class that
only a torch built with MPI has. This module adds the class. That path drops the timeout and the
store, so the functions that call it are wrapped to pass them on.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d as c10d

from distdemo.errors import UsageError
from distdemo.mpi import runtime
from distdemo.mpi.process_group import MpiProcessGroup

_group: ContextVar[tuple[str, float]] = ContextVar("mpi_group")
"""Torch's name for the group that it is creating, and the timeout of its ops in seconds."""
_store: ContextVar[Any] = ContextVar("mpi_store", default=None)


class ProcessGroupMPI(MpiProcessGroup):
    """The class that torch expects under this name."""

    @staticmethod
    def create(ranks: list[int]) -> dist.ProcessGroup:
        """Create the group of these ranks, or of all if the list is empty. Collective."""
        name, seconds = _group.get()
        comm = _of_some(ranks, name, seconds) if ranks else _of_world(seconds)
        return ProcessGroupMPI(comm, seconds)


def register() -> None:
    """Register this package as ``mpi``, unless it is registered already."""
    if getattr(c10d, "ProcessGroupMPI", None) is ProcessGroupMPI:
        return
    put: Callable[[object, str, object], None] = setattr
    put(c10d, "ProcessGroupMPI", ProcessGroupMPI)
    put(c10d, "_MPI_AVAILABLE", True)
    put(dist, "ProcessGroupMPI", ProcessGroupMPI)
    dist.Backend.backend_capability["mpi"] = ["cpu"]
    register_builtin = getattr(c10d, "_register_builtin_mpi_backend", None)  # from 2.15 on
    if register_builtin is not None:
        register_builtin()
    new_group = _with_timeout_and_store(c10d._new_process_group_helper)
    put(c10d, "_new_process_group_helper", new_group)
    init = _with_numbers_of_mpi(c10d.init_process_group)
    put(c10d, "init_process_group", init)
    put(dist, "init_process_group", init)


def _is_mpi(backend: str) -> bool:
    """Return True if a group uses MPI.

    Raises:
        UsageError: MPI is one backend of several.
    """
    names = [pair.rpartition(":")[2] for pair in backend.lower().split(",")]
    if "mpi" in names and backend.lower() != "mpi":
        raise UsageError(
            f"The backend of a group can't be {backend}.",
            "torch can't combine mpi with other backends in one group.",
            'Use "mpi" for the world, and new_group(backend=...) for groups of other backends.',
        )
    return "mpi" in names


def _with_numbers_of_mpi(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``init_process_group``: initialize MPI, check rank and world size against MPI's."""
    signature = inspect.signature(original)

    @wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        if not _is_mpi(str(given.get("backend"))):
            return original(*args, **kwargs)
        runtime.begin()
        runtime.check_rank(given.get("rank", -1), given.get("world_size", -1))
        for unused in ("rank", "world_size", "init_method"):
            given.pop(unused, None)
        token = _store.set(given.pop("store", None))
        try:
            return original(**given)
        finally:
            _store.reset(token)

    return init_process_group


def _with_timeout_and_store(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap torch's group helper: pass name, timeout and store on to ``create``."""
    signature = inspect.signature(original)

    @wraps(original)
    def new_process_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if not _is_mpi(str(given["backend"])):
            return original(*args, **kwargs)
        runtime.begin()
        if not given["global_ranks_in_group"]:
            world = MPI.COMM_WORLD
            given |= {"group_rank": world.rank, "group_size": world.size}
        store = _store.get()
        if store is not None:
            given["store"] = PrefixStore("default_pg", store)
        token = _group.set((given["group_name"], given["timeout"].total_seconds()))
        try:
            return original(**given)
        finally:
            _group.reset(token)

    return new_process_group


# ------------------------------------------------------------------------------ communicators
# Each group has its own, so that messages of different groups don't mix. Exactly the ranks of a
# new group call these functions, in the same order.

_control: list[MPI.Intracomm] = []
"""A copy of the world, for the messages that create groups."""


def _of_world(seconds: float) -> MPI.Intracomm:
    """Return a communicator of all ranks. Collective.

    Raises:
        DistBackendError: Not all ranks arrived in time.
    """
    runtime.State.timeout = seconds
    if not _control:
        _control.append(_copy(seconds))
    return _copy(seconds)


def _of_some(ranks: Sequence[int], name: str, seconds: float) -> MPI.Intracomm:
    """Return a communicator of some ranks of the world, numbered in this order. Collective.

    MPI would wait forever for a missing rank, so the ranks first synchronize with a deadline: in
    round k each rank receives a message from the one 2^k positions before it.

    Raises:
        DistBackendError: Not all ranks arrived in time.
    """
    world = _control[0]
    size = len(ranks)
    me = list(ranks).index(world.rank)
    tag = zlib.crc32(name.encode()) % 32768  # valid in all MPIs
    step = 1
    while step < size:
        target = ranks[(me + step) % size]
        source = ranks[(me - step) % size]
        sent = world.Isend((b"", MPI.BYTE), target, tag)
        _wait_for(world.Irecv((bytearray(), MPI.BYTE), source, tag), seconds)
        _wait_for(sent, seconds)
        step *= 2
    group = world.Get_group().Incl(list(ranks))
    try:
        return world.Create_group(group, tag)
    finally:
        group.Free()


def _copy(seconds: float) -> MPI.Intracomm:
    copy, request = MPI.COMM_WORLD.Idup()
    _wait_for(request, seconds)
    return copy


def _wait_for(request: MPI.Request, seconds: float) -> None:
    if not runtime.done_in_time(request.Test, seconds):
        raise runtime.timed_out("creating a process group", seconds)
