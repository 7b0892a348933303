"""What ``distdemo.launch`` refuses before it starts a rank, because it can't be a world."""

from __future__ import annotations

import math
import multiprocessing
from typing import TYPE_CHECKING

from distdemo.backends import REGISTRY
from distdemo.backends.starting import named
from distdemo.errors import UsageError
from distdemo.launcher.limits import check_machine
from distdemo.launcher.start_method import METHODS
from distdemo.launcher.torch_import import load_torch

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

LONGEST = 1e9  # seconds, some 30 years: far below what overflows in torch's clocks


def check_world(world: WorldSpec) -> None:
    """Refuse what can't be a world.

    Raises:
        UsageError: a setting is wrong, or this torch or machine can't do it.
    """
    _check_importing()
    _check_size(world.world_size)
    _check_timeout(world.deadline)
    _check_start_method(world.start_method)
    _check_device(world.device)
    load_torch()
    _check_backend(world.backend)
    _check_gpus(world)
    check_machine(world)


def _check_importing() -> None:
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "launch was called while a rank was importing your script.",
            "Each rank imports the script that launched it, and must not launch a world again.",
            "Put the call under `if __name__ == '__main__':`.",
        )


def _check_size(world_size: object) -> None:
    if isinstance(world_size, bool) or not isinstance(world_size, int):
        raise UsageError(
            f"world_size is {world_size!r}.", "It counts the ranks.", "Give a whole number."
        )
    if world_size < 1:
        raise UsageError(
            f"world_size is {world_size}.", "A world has at least one rank.", "Try 1 or more."
        )


def _check_timeout(timeout: object) -> None:
    if not (isinstance(timeout, (int, float)) and 0 < timeout < math.inf):
        raise UsageError(
            f"timeout is {timeout!r}.",
            "It is the seconds until a world is judged to hang.",
            "Give a positive number.",
        )
    if timeout > LONGEST:
        raise UsageError(
            "timeout is too long.",
            f"More than {LONGEST:g} s, some 30 years, don't fit into the clocks of the backends.",
            "Give fewer seconds.",
        )


def _check_start_method(wanted: object) -> None:
    if wanted not in METHODS:
        raise UsageError(
            f"start_method is {wanted!r}.",
            f"It is one of {', '.join(METHODS)}.",
            "Leave it out to take the fastest safe one.",
        )


def _check_device(device: object) -> None:
    if device not in ("cpu", "cuda"):
        raise UsageError(
            f"device is {device!r}.",
            "Ranks live on the CPU, or on one GPU each.",
            "Give 'cpu' or 'cuda'.",
        )


# ------------------------------------------------------------------------------ what torch has


def _check_backend(backend: object) -> None:
    if not isinstance(backend, str):
        raise UsageError(
            f"backend is {backend!r}.", "It is torch's name of one.", "Give a text, such as 'gloo'."
        )
    for name in named(backend):
        if name not in _known() or name == "undefined":
            why = f"torch.distributed knows {', '.join(sorted(_known() - {'undefined'}))}."
            raise UsageError(f"There is no backend {name!r}.", why, _others())
        if not _is_here(name):
            raise UsageError(f"The backend {name} is not here.", _why_not(name), _others())


def _check_gpus(world: WorldSpec) -> None:
    import torch

    greedy = [n for n in named(world.backend) if n in REGISTRY and REGISTRY[n].rank_per_gpu]
    if not (world.device == "cuda" or greedy):
        return
    gpus = torch.cuda.device_count()  # asks NVML, and so leaves CUDA alone
    if gpus == 0:
        asked = "device='cuda'" if world.device == "cuda" else f"backend={greedy[0]!r}"
        raise UsageError(
            f"{asked} needs a GPU.",
            "There is none on this machine that torch can use."
            if torch.version.cuda or torch.version.hip
            else f"This torch, {torch.__version__}, was built for the CPU alone.",
            "Try device='cpu' with backend='gloo', or see whether nvidia-smi works.",
        )
    if world.device == "cuda" and greedy and gpus < world.world_size:
        raise UsageError(
            f"{world.world_size} ranks over {greedy[0]} need as many GPUs.",
            f"{greedy[0]} takes one rank a GPU, and torch sees {gpus} here.",
            f"Try world_size={gpus}, or backend='gloo', whose ranks share GPUs.",
        )


def _why_not(name: str) -> str:
    backend = REGISTRY.get(name)
    if backend is None or not backend.provider:
        return "This torch was built without it."
    return f"{backend.missing()} {backend.get}"


def _known() -> set[str]:
    import torch.distributed as dist

    return set(dist.Backend.backend_list)


def _others() -> str:
    here = ", ".join(name for name in sorted(_known()) if _has(name))
    return f"Try one of those that it has: {here}."


def _has(name: str) -> bool:
    """Whether it is built into torch, or registered with it."""
    import torch.distributed as dist

    registered = getattr(dist.Backend, "_plugins", {})
    return name.upper() in registered or getattr(dist, f"is_{name}_available", lambda: False)()


def _is_here(name: str) -> bool:
    """Whether it can be used: torch has it, or is given it by us."""
    if _has(name):
        return True
    backend = REGISTRY.get(name)
    return backend is not None and bool(backend.provider) and backend.missing() is None
