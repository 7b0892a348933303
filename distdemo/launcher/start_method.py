"""Which start method a world takes: the fastest that is safe in this process.

CUDA does not survive a fork: not its contexts, and not ``cuInit`` alone, which already a call like
``torch.cuda.is_available()`` makes. Torch can't tell (``torch.cuda.is_initialized()`` is false
then, and ``_is_in_bad_fork`` speaks in the child only), and other libraries call ``cuInit``
themselves. But nobody can without the driver's library, so what counts is whether ``libcuda.so`` is
loaded into this process. Counting GPUs through NVML, as ``torch.cuda.device_count()`` does, loads
another library, which starts no CUDA; ranks forked afterwards may use their GPUs.

Sources: docs/source/notes/multiprocessing.rst of PyTorch, "Poison fork in multiprocessing";
``torch/cuda/__init__.py`` of 2.8, 2.13 and 2.15; pytorch issues 83973 and 190708.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.launcher.torch_import import fork_hazard

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

METHODS = ("auto", "fork", "forkserver", "spawn")
DRIVER = "libcuda.so"
LAUNCHER = "_DISTDEMO_LAUNCHER"
"""The variable that tells a new forkserver the process for which it runs."""


@dataclass(frozen=True, slots=True)
class StartMethod:
    """A start method and the reason for it."""

    name: str
    reason: str


def choose(wanted: str, device: str) -> StartMethod:
    """The start method for a world.

    Args:
        wanted: one of ``METHODS``.
        device: the ranks' device; CUDA must not have been touched before a fork.

    Raises:
        UsageError: the method doesn't exist here, or would break the ranks.
    """
    if wanted == "auto" and sys.platform != "linux":
        return StartMethod("spawn", f"forking is not safe on {sys.platform}")
    if wanted == "auto":
        hazard = fork_hazard()
        if hazard is None and device != "cpu" and driver_loaded() is not False:
            hazard = "this process has loaded the CUDA driver"
        if hazard is not None:
            return StartMethod("forkserver", f"{hazard}, so forking it is not safe")
        alone = "" if device == "cpu" else ", and only they touch CUDA"
        return StartMethod("fork", f"torch is imported once, for all ranks{alone}")
    if wanted not in multiprocessing.get_all_start_methods():
        raise UsageError(
            f"There is no start method {wanted!r} on {sys.platform}.",
            f"Python offers {', '.join(multiprocessing.get_all_start_methods())} here.",
            "Leave it out to take the fastest safe one.",
        )
    import torch

    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch does not say its type
    if wanted == "fork" and (used or (device != "cpu" and driver_loaded())):
        raise UsageError(
            "Ranks can't be forked from this process.",
            "It has used CUDA, which does not survive a fork.",
            "Leave out start_method (a forkserver is taken then), or launch before using the GPU.",
        )
    return StartMethod(wanted, "as asked for")


def driver_loaded() -> bool | None:
    """Whether the CUDA driver's library is in this process; None where the system does not tell."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return any(line.rpartition("/")[2].startswith(DRIVER) for line in maps.splitlines())


def preload(context: BaseContext, provider: str) -> None:
    """Have the forkserver import torch, and what ranks need besides, before it forks the first.

    A forkserver that the program started before, without torch, is used as it is: slower, right.

    Args:
        context: of multiprocessing.
        provider: of the backend, imported too; empty: none.
    """
    from multiprocessing.forkserver import ensure_running

    more = [provider] if provider else []
    context.set_forkserver_preload(["distdemo.launcher.forkserver", *more])
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        ensure_running()
    finally:
        del os.environ[LAUNCHER]
