"""Gives torch's own backend name ``mpi`` to this package, on a torch that was built without MPI.

``Backend.register_backend`` can't give that name: torch has a path of its own for ``mpi``, with no
store, no rank and no world size, that ends in ``ProcessGroupMPI.create(ranks)``, a class that only
a torch built with MPI has. This module puts one there. That path drops the timeout and the store,
so the functions that call it are wrapped: what the caller gave arrives.
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
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import distributed_c10d as c10d

from distdemo.errors import UsageError
from distdemo.mpi import runtime
from distdemo.mpi.process_group import MpiProcessGroup

_group: ContextVar[tuple[str, float]] = ContextVar("mpi_group")
"""Torch's name for the group that it is about to make, and the timeout of its ops in seconds."""
_store: ContextVar[Any] = ContextVar("mpi_store", default=None)


class ProcessGroupMPI(MpiProcessGroup):
    """What torch looks for under this name."""

    @staticmethod
    def create(ranks: list[int]) -> dist.ProcessGroup:
        """The group of these ranks of the world; of all if there are none in the list.

        Collective: every rank of the group calls it.
        """
        name, seconds = _group.get()
        comm = _of_some(ranks, name, seconds) if ranks else _of_world(seconds)
        return ProcessGroupMPI(comm, seconds)


def take_the_name() -> None:
    """Make ``mpi`` mean this package; harmless when it does already."""
    if getattr(c10d, "ProcessGroupMPI", None) is ProcessGroupMPI:
        return
    put: Callable[[object, str, object], None] = setattr
    put(c10d, "ProcessGroupMPI", ProcessGroupMPI)
    put(c10d, "_MPI_AVAILABLE", True)
    put(dist, "ProcessGroupMPI", ProcessGroupMPI)
    dist.Backend.backend_capability["mpi"] = ["cpu"]
    register = getattr(c10d, "_register_builtin_mpi_backend", None)  # from 2.15 on
    if register is not None:
        register()
    new_group = _with_timeout_and_store(c10d._new_process_group_helper)  # noqa: SLF001 - no public way
    put(c10d, "_new_process_group_helper", new_group)
    init = _with_numbers_of_mpi(c10d.init_process_group)
    put(c10d, "init_process_group", init)
    put(dist, "init_process_group", init)


def _is_mpi(backend: str) -> bool:
    """Whether a group is to be made over MPI.

    Raises:
        UsageError: it is to be one backend of several.
    """
    names = [pair.rpartition(":")[2] for pair in backend.lower().split(",")]
    if "mpi" in names and backend.lower() != "mpi":
        raise UsageError(
            f"The backend of a group can't be {backend}.",
            "torch takes a group over mpi as it is, not as one backend of several.",
            'Make the world with "mpi", and groups of other backends with new_group(backend=...).',
        )
    return "mpi" in names


def _begin() -> None:
    """Begin MPI, which can tell only then on which devices it takes tensors."""
    runtime.begin()
    if runtime.takes_cuda():
        dist.Backend.backend_capability["mpi"] = ["cpu", "cuda"]


def _with_numbers_of_mpi(original: Callable[..., None]) -> Callable[..., None]:
    """``init_process_group`` that begins MPI, and compares the caller's numbers with MPI's."""
    signature = inspect.signature(original)

    @wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - torch's
        given = signature.bind(*args, **kwargs).arguments
        if not _is_mpi(str(given.get("backend"))):
            return original(*args, **kwargs)
        _begin()
        runtime.check_place(given.get("rank", -1), given.get("world_size", -1))
        for unused in ("rank", "world_size", "init_method"):
            given.pop(unused, None)
        token = _store.set(given.pop("store", None))
        try:
            return original(**given)
        finally:
            _store.reset(token)

    return init_process_group


def _with_timeout_and_store(original: Callable[..., Any]) -> Callable[..., Any]:
    """Torch's maker of groups, that tells ``create`` what it was asked for."""
    signature = inspect.signature(original)

    @wraps(original)
    def new_process_group(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - torch's
        given = signature.bind(*args, **kwargs).arguments
        if not _is_mpi(str(given["backend"])):
            placeholder = type(getattr(given["store"], "underlying_store", given["store"]))
            if given["global_ranks_in_group"] and placeholder is Store:
                raise UsageError(
                    f"A group of {given['backend']} needs a store, and this world has none.",
                    "MPI itself needs none, so init_process_group was called without.",
                    'Give it one: init_process_group("mpi", store=...).',
                )
            return original(*args, **kwargs)
        _begin()
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
# Each group has its own, so that no message of one is taken for another's. Every rank of a new
# group, and nobody else, calls these functions, in the same order.

_control: list[MPI.Intracomm] = []
"""The world once more, for the messages that make groups."""


def _of_world(seconds: float) -> MPI.Intracomm:
    """Collective: a communicator of all ranks.

    Raises:
        DistBackendError: not all came in time.
    """
    runtime.State.timeout = seconds
    if not _control:
        _control.append(_copy(seconds))
        here = _control[0].Split_type(MPI.COMM_TYPE_SHARED)  # all have come by now
        runtime.note_ranks_here(here.size)
        here.Free()
    return _copy(seconds)


def _of_some(ranks: Sequence[int], name: str, seconds: float) -> MPI.Intracomm:
    """Collective: a communicator of some ranks of the world, numbered in this order.

    MPI would wait for ever for one that doesn't come, so they meet before, with a deadline: in
    round k each rank hears from the one 2^k places before it.

    Raises:
        DistBackendError: not all came in time.
    """
    world, many = _control[0], len(ranks)
    me, tag = list(ranks).index(world.rank), zlib.crc32(name.encode()) % 32768  # all MPIs have it
    step = 1
    while step < many:
        to, source = ranks[(me + step) % many], ranks[(me - step) % many]
        sent = world.Isend((b"", MPI.BYTE), to, tag)
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
        raise runtime.timed_out("making a process group", seconds)
