"""The backends: one file per backend, and the registry of all of them."""

from __future__ import annotations

from distdemo.backends.contract import Backend
from distdemo.backends.gloo import Gloo
from distdemo.backends.gpus import count_gpus, gpus_in_sight
from distdemo.backends.mpi import Mpi
from distdemo.backends.nccl import Nccl
from distdemo.backends.starting import check_gpus, prepared, run_prepared, versions_of
from distdemo.backends.ucc import Ucc

__all__ = [
    "REGISTRY",
    "Backend",
    "automatic",
    "check_gpus",
    "count_gpus",
    "gpus_in_sight",
    "prepared",
    "run_prepared",
    "versions_of",
]

_ALL: tuple[Backend, ...] = (Gloo(), Nccl(), Mpi(), Ucc())

REGISTRY: dict[str, Backend] = {backend.name: backend for backend in _ALL}
"""Every backend by torch's name."""


def automatic(world_size: int, device: str | None) -> Backend:
    """Return the backend for ``--backend auto``: nccl if every rank gets a GPU, else gloo.

    Imports torch only if the system has a GPU.
    """
    if device == "cpu" or not gpus_in_sight():
        return REGISTRY["gloo"]
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    nccl = REGISTRY["nccl"]
    enough = count_gpus() >= world_size and nccl.missing() is None
    return nccl if enough else REGISTRY["gloo"]
