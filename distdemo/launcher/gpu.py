"""Assign a GPU to a rank, and destroy its group without hanging.

Under nccl the rank's group is bound to its GPU (``device_id`` of ``init_process_group``). NCCL then
connects at once, so an unusable GPU is reported when the rank joins, not in the middle of an op,
and later barriers and groups use that GPU too. gloo gets no ``device_id``: it doesn't need one, and
from torch 2.11 on it would connect all ranks at once.
"""

from __future__ import annotations

import faulthandler
import os

from distdemo.errors import DistdemoError

DESTROY_TIMEOUT_S = 5.0  # for NCCL to close its connections


def device_of(device: str, local_rank: int, gpus: int) -> str:
    """Return the device of a rank. Ranks share GPUs if their host has fewer GPUs than ranks.

    Args:
        device: ``cpu`` or ``cuda``.
        local_rank: Number of the rank among those of its host.
        gpus: Number of GPUs that this process sees.

    Raises:
        DistdemoError: This process sees no GPU.
    """
    if device == "cpu":
        return "cpu"
    if gpus == 0:
        raise DistdemoError(
            "This rank sees no GPU.",
            f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.",
            "Check that nvidia-smi works on its host.",
        )
    return f"{device}:{local_rank % gpus}"


def set_device(device: str) -> None:
    """Initialise CUDA and make this the process's GPU.

    Raises:
        DistdemoError: CUDA can't be initialised, or not on this GPU.
    """
    if device == "cpu":
        return
    import torch

    try:
        torch.cuda.set_device(device)
        torch.cuda.current_stream()  # set_device alone does not initialise it in every release
    except (RuntimeError, AssertionError, AttributeError) as error:
        said = str(error).strip() or type(error).__name__
        hint = "Check that nvidia-smi works there and that torch is built for its driver."
        if "forked" in said or "initialization error" in said:
            hint = "The process that started it had used CUDA: use --start-method forkserver."
        what = f"{device} can't be used: {said.splitlines()[0].strip()}"
        raise DistdemoError(what, "CUDA could not be initialised.", hint) from error


def destroy_group() -> None:
    """Destroy the default group, or exit the process if NCCL takes too long.

    Nothing is lost: every rank has reported its result.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - no Path is needed
        # A watchdog in C needs no GIL, which NCCL may hold when it hangs.
        faulthandler.dump_traceback_later(DESTROY_TIMEOUT_S, exit=True, file=nowhere)
        dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()
