"""Choose the start method of a world: the fastest that is safe in this process.

CUDA doesn't survive a fork: neither its contexts nor ``cuInit`` alone, which even
``torch.cuda.is_available()`` calls. Torch doesn't notice (``torch.cuda.is_initialized()`` is false
then, and ``_is_in_bad_fork`` is set in the child only), and other libraries call ``cuInit`` too.
They all need the driver's library, so the test is whether ``libcuda.so`` is loaded into this
process. Counting GPUs through NVML, as ``torch.cuda.device_count()`` does, loads another library
and doesn't initialise CUDA; ranks forked afterwards may use their GPUs.

Sources: docs/source/notes/multiprocessing.rst of PyTorch, "Poison fork in multiprocessing";
``torch/cuda/__init__.py`` of 2.8, 2.13 and 2.15; pytorch issues 83973 and 190708.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.launcher import torch_import
from distdemo.platform import system

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import BaseContext

    from distdemo.launcher.process_tree import Cleanup

METHODS = ("auto", "fork", "forkserver", "spawn")
DRIVER = "libcuda.so"


@dataclass(frozen=True, slots=True)
class StartMethod:
    """Start method and the reason for it."""

    name: str
    reason: str


def choose(wanted: str, device: str) -> StartMethod:
    """Choose the start method for a world.

    Args:
        wanted: One of ``METHODS``.
        device: Device of the ranks; CUDA must not have been used before a fork.

    Raises:
        UsageError: The method would break the ranks.
    """
    if wanted == "auto":
        if not system.forks_safely:
            return StartMethod("spawn", "forking is not safe on this system")
        hazard = torch_import.fork_hazard()
        if hazard is None and device != "cpu" and driver_loaded():
            hazard = "this process has loaded the CUDA driver"
        if hazard is not None:
            return StartMethod("forkserver", f"{hazard}, so forking it is not safe")
        alone = "" if device == "cpu" else ", and only they touch CUDA"
        reason = "torch is imported once, for all ranks"
        if torch_import.from_warm_process:
            reason = "from the warm process, which had imported torch"
        return StartMethod("fork", f"{reason}{alone}")
    import torch

    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch does not say its type
    if wanted == "fork" and (used or (device != "cpu" and driver_loaded())):
        raise UsageError(
            "Ranks can't be forked from this process.",
            "It has used CUDA, which does not survive a fork.",
            "Leave out start_method to use a forkserver, or launch before using the GPU.",
        )
    return StartMethod(wanted, "as requested")


def driver_loaded() -> bool:
    """Return True if the CUDA driver's library is loaded in this process."""
    return system.has_loaded(DRIVER)


def preload(context: BaseContext, modules: Sequence[str]) -> None:
    """Make the forkserver import torch and these modules before it forks the first rank.

    A forkserver that the program started earlier, without torch, is used as it is: slower, but
    correct. The folder of its socket is removed even if the program is killed.

    Args:
        context: Context of multiprocessing.
        modules: Further modules, such as the one that provides the backend.
    """
    from multiprocessing import forkserver, util

    context.set_forkserver_preload(["distdemo.launcher.forkserver", *modules])
    _remove_later(util.get_temp_dir())
    forkserver.ensure_running()


@cache
def _remove_later(folder: str) -> Cleanup:
    """Start the process that removes this folder once this process has exited."""
    from multiprocessing import util

    from distdemo.launcher.process_tree import Cleanup

    cleanup = Cleanup([folder])
    util.Finalize(None, cleanup.close, exitpriority=-200)  # after multiprocessing's own removal
    return cleanup
