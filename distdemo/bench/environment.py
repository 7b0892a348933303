"""The machine and the environment variables that results depend on."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

from distdemo.doctor.machine import Share, share
from distdemo.doctor.system import System

TUNING = (
    *("GLOO_", "NCCL_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "MPICH_", "MPIR_", "I_MPI_", "OMPI_MCA_", "FI_", "UCX_"),
)
"""Prefixes of the variables that tune libraries; no others are recorded."""


def cores() -> Share:
    """Return the share of the machine's cores available to this process and its ranks."""
    return share(System())


def environment(*, gpu: bool) -> dict[str, str | int | float]:
    """Return the environment for the report; call it after all ranks have exited.

    Args:
        gpu: True to include the name of the GPU.
    """
    found: dict[str, str | int | float] = {
        "host": socket.gethostname(),
        "processor": _processor(),
        "cores": cores().effective,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **{name: os.environ[name] for name in sorted(os.environ) if name.startswith(TUNING)},
    }
    if gpu:
        import torch

        found["gpu"] = torch.cuda.get_device_name(0)
    return found


def _processor() -> str:
    """Return the processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")
