"""The backends: one a file behind one contract, and the registry that is their only list."""

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
"""Every backend by torch's own name."""


def automatic(world_size: int, device: str | None) -> Backend:
    """What ``--backend auto`` takes: nccl where there is a GPU for every rank, else gloo.

    Imports torch only where the system shows a GPU.
    """
    if device == "cpu" or not gpus_in_sight():
        return REGISTRY["gloo"]
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    nccl = REGISTRY["nccl"]
    enough = count_gpus() >= world_size and nccl.missing() is None
    return nccl if enough else REGISTRY["gloo"]
