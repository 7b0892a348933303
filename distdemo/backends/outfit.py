"""A world that names its backend is given what this backend needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec


def outfitted(world: WorldSpec, *, by_engine: bool = False) -> WorldSpec:
    """The same world with all that the ranks of its backends need. Imports torch.

    Args:
        world: its backend may be a mixture, ``cpu:mpi,cuda:nccl``.
        by_engine: an engine has started its processes and told them who they are.

    Raises:
        UsageError: something of it is missing.
    """
    from distdemo.backends import REGISTRY

    for name in named(world.backend):
        backend = REGISTRY.get(name)
        if backend is not None:
            world = backend.outfit(world, by_engine=by_engine)
    return world


def named(backend: str) -> list[str]:
    """The backends of a setting such as ``gloo`` or ``cpu:gloo,cuda:nccl``."""
    return [part.rpartition(":")[2].strip().lower() for part in backend.split(",")]
