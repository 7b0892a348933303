"""What the ranks of a backend need before they start.

The launcher knows no backend: it is handed a ``WorldSpec`` that says all of this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distdemo.backends.contract import Backend
from distdemo.backends.gpus import count_gpus, why_none
from distdemo.errors import UsageError

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport, WorldSpec


def named(backend: str) -> list[str]:
    """The backends of a setting such as ``gloo`` or ``cpu:gloo,cuda:nccl``."""
    return [part.rpartition(":")[2].strip().lower() for part in backend.split(",")]


def prepared(world: WorldSpec, *, joined: bool = False) -> WorldSpec:
    """The same world with all that the ranks of its backends need. Imports torch.

    Args:
        world: its backend may be a mixture, ``cpu:gloo,cuda:nccl``.
        joined: another launcher has started its processes and given them their ranks.

    Raises:
        UsageError: its ranks can't be started here.
    """
    from distdemo.backends import REGISTRY

    for name in named(world.backend):
        backend = REGISTRY.get(name)
        if backend is None:
            continue
        world = replace(
            world,
            provider=backend.provided_by() or world.provider,
            rank_per_gpu=backend.rank_per_gpu or world.rank_per_gpu,
            mpi_start=None if joined else backend.mpi_start(world.world_size) or world.mpi_start,
        )
    return world


def run_prepared(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    **how: Any,  # noqa: ANN401 - the launcher's own
) -> WorldReport:
    """``launcher.local.run_world`` with the world as its backend needs it.

    Raises:
        UsageError: its ranks can't be started here.
    """
    from distdemo.launcher.local import run_world

    return run_world(prepared(world), target, args, **how)


def check_gpus(backend: Backend, world: WorldSpec, ranks: int) -> None:
    """Refuse ranks on GPUs that are not there. Imports torch.

    Args:
        backend: of the world.
        world: with its device.
        ranks: how many of its ranks share the GPUs that this process sees.

    Raises:
        UsageError: torch can use no GPU, or the backend needs more than there are.
    """
    if world.device == "cpu":
        return
    gpus = count_gpus()
    if gpus == 0:
        usual = backend.devices[0] == world.device
        asked = f"--backend {backend.name}" if usual else f"--device {world.device}"
        raise UsageError(f"{asked} needs a GPU.", *why_none())
    if backend.rank_per_gpu and gpus < ranks:
        whole = ranks == world.world_size
        raise UsageError(
            f"{ranks} ranks{'' if whole else ' of this host'} over {backend.name}, "
            f"but there {'is one GPU' if gpus == 1 else f'are {gpus} GPUs'}.",
            f"{backend.name} takes one rank a GPU.",
            f"Try --world-size {gpus}, or --backend gloo --device cuda, whose ranks share GPUs."
            if whole
            else f"Start {gpus} of them here, or try --backend gloo --device cuda.",
        )


def versions_of(world: WorldSpec) -> dict[str, str]:
    """The versions that count in a world on GPUs, by name; none on the CPU. Imports torch."""
    if world.device == "cpu":
        return {}
    import torch

    from distdemo.backends import REGISTRY

    found = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    found |= {name: REGISTRY[name].version() for name in named(world.backend) if name in REGISTRY}
    return {name: version for name, version in found.items() if version}
