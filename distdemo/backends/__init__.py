"""The backends, one per file: their registry, and what a world needs of them before it starts.

The launcher doesn't know the backends; it gets all of this in a ``WorldSpec``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distdemo.backends.contract import Backend
from distdemo.backends.gloo import Gloo
from distdemo.backends.gpus import count_gpus, has_gpu, why_none
from distdemo.backends.mpi import Mpi
from distdemo.backends.nccl import Nccl
from distdemo.backends.ucc import Ucc
from distdemo.errors import UsageError

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

__all__ = [
    "REGISTRY",
    "backend_names",
    "check_gpus",
    "count_gpus",
    "default_backend",
    "has_gpu",
    "prepared",
    "resolved",
    "versions_of",
]

_ALL: tuple[Backend, ...] = (Gloo(), Nccl(), Mpi(), Ucc())

REGISTRY: dict[str, Backend] = {backend.name: backend for backend in _ALL}
"""Every backend by torch's name. ``resolved`` adds those of the user's modules."""


def resolved(text: str) -> str:
    """Return the name of a backend. That of ``module:name`` is added to the registry.

    Raises:
        UsageError: The module can't be imported, or registers no such backend.
    """
    module, colon, name = text.rpartition(":")
    if not colon:
        return text
    name = name.lower()
    if any(backend.name == name for backend in _ALL):
        raise UsageError(
            f"--backend {text}: {name} is the name of another backend.",
            "A module needs another name for its backend.",
            f"Try --backend {name}, without the module.",
        )
    if name not in REGISTRY:
        from distdemo.backends.plugin import Plugin

        REGISTRY[name] = Plugin(module, name)
    return name


def default_backend(world_size: int, device: str | None) -> Backend:
    """Return the backend for ``--backend auto``: nccl if every rank gets a GPU, else gloo.

    Imports torch only if the system has a GPU.
    """
    if device == "cpu" or not has_gpu():
        return REGISTRY["gloo"]
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    nccl = REGISTRY["nccl"]
    enough = count_gpus() >= world_size and nccl.missing() is None
    return nccl if enough else REGISTRY["gloo"]


def backend_names(backend: str) -> list[str]:
    """Return the backends in a setting such as ``gloo`` or ``cpu:gloo,cuda:nccl``."""
    return [part.rpartition(":")[2].strip().lower() for part in backend.split(",")]


def prepared(world: WorldSpec, *, joined: bool = False) -> WorldSpec:
    """Return the world with the requirements of its backends filled in. Imports torch.

    Args:
        world: A world whose backend may be a combination such as ``cpu:gloo,cuda:nccl``.
        joined: True if another launcher started the processes and assigned their ranks.

    Raises:
        UsageError: The ranks can't be started here.
    """
    for name in backend_names(world.backend):
        backend = REGISTRY.get(name)
        if backend is None:
            continue
        world = replace(
            world,
            provider=backend.provided_by() or world.provider,
            rank_per_gpu=backend.rank_per_gpu or world.rank_per_gpu,
            mpi_environment=None
            if joined
            else backend.mpi_environment(world.world_size) or world.mpi_environment,
        )
    return world


def check_gpus(backend: Backend, world: WorldSpec, ranks: int) -> None:
    """Raise `UsageError` if there are too few GPUs for the ranks. Imports torch to count them.

    Args:
        backend: Backend of the world.
        world: World whose device is checked.
        ranks: Number of its ranks that share the GPUs of this process.

    Raises:
        UsageError: torch can use no GPU, or the backend needs more GPUs than there are.
    """
    if world.device == "cpu":
        return
    gpus = count_gpus()
    if gpus == 0:
        is_default = backend.devices[0] == world.device
        option = f"--backend {backend.option}" if is_default else f"--device {world.device}"
        raise UsageError(f"{option} needs a GPU.", *why_none())
    if backend.rank_per_gpu and gpus < ranks:
        raise UsageError(
            f"{ranks} ranks on this host, but {backend.name} can use {gpus} GPUs.",
            f"{backend.name} needs one GPU per rank.",
            f"Start {gpus} ranks here, or try --backend gloo --device cuda.",
        )


def versions_of(world: WorldSpec) -> dict[str, str]:
    """Return the versions of the GPU libraries of a world; empty on the CPU. Imports torch."""
    if world.device == "cpu":
        return {}
    import torch

    libraries = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    for name in backend_names(world.backend):
        if name in REGISTRY:
            libraries[name] = REGISTRY[name].version()
    return {name: version for name, version in libraries.items() if version}
