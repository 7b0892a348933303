"""A rank and its GPU: which one it takes, what its group has to know of it, and how it leaves.

Under nccl a rank's group is bound to its GPU (``device_id`` of ``init_process_group``): NCCL then
connects at once, so that a GPU which it can't use is told when the rank joins and not in the middle
of an op, and barriers and groups made later keep to that GPU. gloo gets none: it has no use for
it, and from torch 2.11 on would take it as the wish to connect all ranks at once.
"""

from __future__ import annotations

import faulthandler
import os

from distdemo.errors import DistdemoError

LEAVING = 5.0  # seconds that NCCL gets to close its connections


def device_of(device: str, local_rank: int, gpus: int) -> str:
    """This rank's own: with more ranks than GPUs on a host, several share one.

    Args:
        device: ``cpu`` or ``cuda``.
        local_rank: its number among the ranks of its host.
        gpus: how many GPUs this process sees.

    Raises:
        DistdemoError: it sees none.
    """
    if device == "cpu":
        return "cpu"
    if gpus == 0:
        raise DistdemoError(
            "This rank sees no GPU.",
            f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.",
            "See whether nvidia-smi works on its host.",
        )
    return f"{device}:{local_rank % gpus}"


def take(device: str) -> None:
    """Make this the GPU of the process. The first use of CUDA in it.

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
        hint = "See whether nvidia-smi works there, and whether torch is built for its driver."
        if "forked" in said or "initialization error" in said:
            hint = "The process that started it had used CUDA: take --start-method forkserver."
        what = f"{device} can't be used: {said.splitlines()[0].strip()}"
        raise DistdemoError(what, "CUDA said so when it was initialised.", hint) from error


def leave_group() -> None:
    """Destroy the default group; if NCCL takes too long for that, end the process instead.

    There is nothing to lose by then: every rank has told its result.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - no Path is needed
        # A watchdog of C, which needs no GIL: who knows where NCCL would hang.
        faulthandler.dump_traceback_later(LEAVING, exit=True, file=nowhere)
        dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()
