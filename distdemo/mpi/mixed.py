"""A group whose CPU tensors go over MPI and whose other tensors go over another backend.

torch takes a group written in Python as it is, so it can't be one backend of several: this one
holds the others' group, and hands on what is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.moving import Moving
from distdemo.mpi.process_group import MpiProcessGroup
from distdemo.mpi.reducing import Reducing

_OPS = [
    name
    for kind in (Moving, Reducing, MpiProcessGroup)
    for name in vars(kind)
    if callable(getattr(kind, name)) and not name.startswith("__") and name != "barrier"
]


def devices_of(backend: str) -> dict[str, str]:
    """The backend of each device in ``cpu:mpi,cuda:nccl``; ``mpi`` alone stands for all ."""
    pairs = (pair.rpartition(":") for pair in backend.lower().split(","))
    return {device: name for device, _, name in pairs}


def others(
    make: Callable[..., tuple[Any, Any]], given: Mapping[str, Any], devices: Mapping[str, str]
) -> dist.ProcessGroup | None:
    """The group of the devices that MPI was not asked for; None if there are none.

    Collective: as torch's maker of groups is.

    Args:
        make: that maker.
        given: what it was given for the whole.
        devices: the backend of each device.
    """
    rest = ",".join(f"{device}:{name}" for device, name in devices.items() if name != "mpi")
    if not rest:
        return None
    name = f"{given['group_name']}/beside_mpi"
    group, _ = make(**{**given, "backend": rest, "group_name": name})
    return group if isinstance(group, dist.ProcessGroup) else None


class MixedProcessGroup(MpiProcessGroup):
    """MPI for tensors on the CPU, and another group for those elsewhere.

    Args:
        comm: the group's own communicator.
        timeout: of every op.
        others: the other group.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: timedelta, others: dist.ProcessGroup) -> None:
        super().__init__(comm, timeout)
        self._others = others

    def _get_backend(self, device: torch.device) -> Any:  # noqa: ANN401 - torch's own
        if device.type == "cpu":
            return self
        return self._others._get_backend(device)  # noqa: SLF001 - torch asks groups for it


def _handing_on(name: str) -> Callable[..., dist.Work]:
    over_mpi = getattr(MpiProcessGroup, name)

    def method(self: MixedProcessGroup, *args: Any, **kwargs: Any) -> dist.Work:  # noqa: ANN401
        tensor = _first_tensor((*args, *kwargs.values()))
        if tensor is None or tensor.is_cpu:
            return over_mpi(self, *args, **kwargs)  # type: ignore[no-any-return]
        return getattr(self._others, name)(*args, **kwargs)  # type: ignore[no-any-return]

    return method


def _first_tensor(things: Any) -> torch.Tensor | None:  # noqa: ANN401 - tensors, lists of lists
    for thing in things:
        found = thing
        if isinstance(thing, (list, tuple)):
            found = _first_tensor(thing)
        if isinstance(found, torch.Tensor):
            return found
    return None


for _name in _OPS:
    setattr(MixedProcessGroup, _name, _handing_on(_name))
