"""Gives torch's own backend name ``mpi`` to this package, on a torch that was built without MPI.

``mpi`` is no name that ``Backend.register_backend`` could give: torch has a path of its own for it,
with no store, no rank and no world size, that ends in ``ProcessGroupMPI.create(ranks)``, a class
that only a torch built with MPI has. This module puts one there. As that path drops the timeout and
the store, the functions that call it are wrapped, so that what the caller gave arrives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import distributed_c10d as c10d

from distdemo.errors import UsageError
from distdemo.mpi import communicators, company, mixed, runtime
from distdemo.mpi.process_group import MpiProcessGroup


@dataclass(frozen=True)
class Order:
    """What a group that torch is about to make was asked to be.

    Attributes:
        timeout: of its ops.
        name: torch's for it, the same on every rank.
        others: serves the devices that MPI was not asked for; None: there are none.
    """

    timeout: timedelta
    name: str
    others: dist.ProcessGroup | None = None


_order: ContextVar[Order] = ContextVar("mpi_order")
_store: ContextVar[Any] = ContextVar("mpi_store", default=None)


class ProcessGroupMPI(MpiProcessGroup):
    """What torch looks for under this name."""

    @staticmethod
    def create(ranks: list[int]) -> dist.ProcessGroup:
        """The group of these ranks of the world; of all if there are none in the list.

        Collective: every rank of the group calls it.
        """
        order = _order.get()
        if ranks:
            comm = communicators.of_some(ranks, order.name, order.timeout)
        else:
            comm = communicators.of_world(order.timeout)
        if order.others is None:
            return ProcessGroupMPI(comm, order.timeout)
        return mixed.MixedProcessGroup(comm, order.timeout, order.others)


def take_the_name() -> None:
    """Make ``mpi`` mean this package; harmless when it does already."""
    if getattr(c10d, "ProcessGroupMPI", None) is ProcessGroupMPI:
        return
    _put(c10d, "ProcessGroupMPI", ProcessGroupMPI)
    _put(c10d, "_MPI_AVAILABLE", True)
    _put(dist, "ProcessGroupMPI", ProcessGroupMPI)
    dist.Backend.backend_capability["mpi"] = ["cpu"]
    register = getattr(c10d, "_register_builtin_mpi_backend", None)  # from 2.15 on
    if register is not None:
        register()
    _put(c10d, "_new_process_group_helper", _telling(c10d._new_process_group_helper))  # noqa: SLF001 - no public way
    begin = _beginning(c10d.init_process_group)
    _put(c10d, "init_process_group", begin)
    _put(dist, "init_process_group", begin)


def _begin() -> None:
    """Begin MPI, which can tell only then on which devices it takes tensors."""
    runtime.begin()
    if runtime.takes_cuda():
        dist.Backend.backend_capability["mpi"] = ["cpu", "cuda"]


def _expect_store(given: Mapping[str, Any]) -> None:
    """Refuse a group of another backend beside one of MPI that was made without a store.

    Raises:
        UsageError: torch would take a placeholder for a store.
    """
    placeholder = type(getattr(given["store"], "underlying_store", given["store"]))
    if given["global_ranks_in_group"] and placeholder is Store:
        raise UsageError(
            f"A group of {given['backend']} needs a store, and this world has none.",
            "MPI itself needs none, so init_process_group was called without.",
            'Give it one: init_process_group("mpi", store=...).',
        )


def _put(module: object, name: str, value: object) -> None:
    setattr(module, name, value)


def _beginning(original: Callable[..., None]) -> Callable[..., None]:
    """``init_process_group`` that begins MPI, and compares the caller's numbers with MPI's."""
    signature = inspect.signature(original)

    @wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - torch's
        given = signature.bind(*args, **kwargs).arguments
        backend = str(given.get("backend")).lower()
        if "mpi" not in mixed.devices_of(backend).values():
            return original(*args, **kwargs)
        _begin()
        company.agree(given.get("rank", -1), given.get("world_size", -1))
        world = MPI.COMM_WORLD
        if backend != "mpi":  # torch's usual path: a store, a rank and a world size
            return original(**given | {"rank": world.rank, "world_size": world.size})
        for unused in ("rank", "world_size", "init_method"):
            given.pop(unused, None)
        token = _store.set(given.pop("store", None))
        try:
            return original(**given)
        finally:
            _store.reset(token)

    return init_process_group


def _telling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Torch's maker of groups, that tells ``create`` what it was asked for."""
    signature = inspect.signature(original)

    @wraps(original)
    def new_process_group(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - torch's
        given = signature.bind(*args, **kwargs).arguments
        devices = mixed.devices_of(str(given["backend"]))
        if "mpi" not in devices.values():
            _expect_store(given)
            return original(*args, **kwargs)
        _begin()
        world = MPI.COMM_WORLD
        if not given["global_ranks_in_group"]:
            given |= {"group_rank": world.rank, "group_size": world.size}
        store = _store.get()
        if store is not None:
            given["store"] = PrefixStore("default_pg", store)
        others = mixed.others(original, given, devices)
        order = Order(given["timeout"], given["group_name"], others)
        token = _order.set(order)
        try:
            return original(**given)
        finally:
            _order.reset(token)

    return new_process_group
