"""The GPUs of this machine: how many torch could use, and why none; without touching any.

Nothing here initialises CUDA, as ranks may be forked from this process. torch asks NVML for the
number (``torch/cuda/__init__.py``, ``_device_count_nvml``, torch 2.8 to 2.15), which takes
``CUDA_VISIBLE_DEVICES`` into account, with numbers and with names like ``GPU-8932f937``. Where
NVML is missing, or the names are those of MIG slices, torch asks the driver instead. The driver is
then loaded into this process, and ``launcher.start_method`` sees that and does not fork.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""What a system with GPUs shows: NVIDIA's nodes, those of Windows' subsystem, AMD's."""


def gpus_in_sight() -> bool:
    """Whether the system shows a GPU at all, asked without torch."""
    return any(Path(node).exists() for node in NODES)


def count_gpus() -> int:
    """How many GPUs torch could use. Imports torch."""
    return _counted()[0]


def _counted() -> tuple[int, str]:
    """How many GPUs torch could use, and what it warned of while it counted them."""
    import torch

    if not gpus_in_sight():
        return 0, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.cuda.device_count()
    texts = [" ".join(str(each.message).partition("(Triggered")[0].split()) for each in caught]
    return found, " ".join(dict.fromkeys(texts))


def why_none() -> tuple[str, str]:
    """Why torch can use no GPU here, and what to try. Imports torch."""
    import torch

    if not gpus_in_sight():
        return "This machine shows no GPU.", "Try --device cpu with --backend gloo."
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"This machine has one, but torch {torch.__version__} was built for the CPU alone.",
            "Install torch's wheel for CUDA: pytorch.org/get-started tells the command.",
        )
    warned = _counted()[1]
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and not warned:
        return (
            f"CUDA_VISIBLE_DEVICES={hidden} leaves none of this machine's.",
            "Unset it, or let it name GPUs that nvidia-smi -L lists.",
        )
    hint = "the driver may be too old for this torch, or need a reboot after an update."
    why = f"torch can use none: {warned or 'The driver finds none.'}"
    return why, f"See whether nvidia-smi works here: {hint}"


def nccl_version() -> str:
    """Of the NCCL that torch brings, ``2.27.3``; empty without one. Initialises no CUDA."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_nccl_available()):
        return ""
    found = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # torch does not say its type
    return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)
