"""Which start method a world takes: the fastest that is safe in this process."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass

from distdemo.errors import UsageError
from distdemo.torch_import import fork_hazard

METHODS = ("auto", "fork", "forkserver", "spawn")


@dataclass(frozen=True, slots=True)
class StartMethod:
    """A start method and the reason for it."""

    name: str
    reason: str


def choose(wanted: str, device: str) -> StartMethod:
    """The start method for a world.

    Args:
        wanted: one of ``METHODS``.
        device: the ranks' device; a GPU must not be counted on across a fork.

    Raises:
        UsageError: the method doesn't exist here, or would break the ranks.
    """
    if wanted == "auto":
        return _automatic(device)
    if wanted not in multiprocessing.get_all_start_methods():
        raise UsageError(
            f"There is no start method {wanted!r} on {sys.platform}.",
            f"Python offers {', '.join(multiprocessing.get_all_start_methods())} here.",
            "Leave it out to take the fastest safe one.",
        )
    if wanted == "fork":
        _refuse_fork_after_cuda()
    return StartMethod(wanted, "as asked for")


def _automatic(device: str) -> StartMethod:
    if sys.platform != "linux":
        return StartMethod("spawn", f"forking is not safe on {sys.platform}")
    if device != "cpu":
        return StartMethod("forkserver", "a process that has counted GPUs should not be forked")
    hazard = fork_hazard()
    if hazard is not None:
        return StartMethod("forkserver", f"{hazard}, so forking it is not safe")
    return StartMethod("fork", "torch is imported once, for all ranks")


def _refuse_fork_after_cuda() -> None:
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch does not say its type
        raise UsageError(
            "Ranks can't be forked from this process.",
            "It has used CUDA, which does not survive a fork.",
            "Leave out start_method (a forkserver is taken then), or launch before using the GPU.",
        )
