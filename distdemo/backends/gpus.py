"""Count this machine's GPUs without initialising CUDA.

Ranks may be forked from this process, which rules out CUDA. torch asks NVML for the number
(``torch/cuda/__init__.py``, ``_device_count_nvml``, torch 2.8 to 2.15) and honours
``CUDA_VISIBLE_DEVICES``, with numbers and with names like ``GPU-8932f937``. If NVML is missing, or
the names are those of MIG slices, torch asks the driver instead. That loads the driver into this
process; ``launcher.start_method`` notices it and doesn't fork.
"""

from __future__ import annotations

import os
from pathlib import Path

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""Device nodes of NVIDIA GPUs, of GPUs in WSL, and of AMD GPUs."""


def has_gpu() -> bool:
    """Return True if the system has a GPU. Doesn't import torch."""
    return any(Path(node).exists() for node in NODES)


def count_gpus() -> int:
    """Return the number of GPUs that torch can use. Imports torch if the system has one."""
    if not has_gpu():
        return 0
    import torch

    return torch.cuda.device_count()


def why_none() -> tuple[str, str]:
    """Return the reason torch can use no GPU here, and a hint. Imports torch if there is one."""
    if not has_gpu():
        return "This machine has no GPU.", "Try --device cpu with --backend gloo."
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"This machine has a GPU, but torch {torch.__version__} was built only for the CPU.",
            "Install a CUDA wheel of torch: pytorch.org/get-started has the command.",
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    return (
        f"torch can use no GPU; CUDA_VISIBLE_DEVICES is {visible}.",
        "Check that nvidia-smi works here: the driver may be too old for this torch.",
    )
