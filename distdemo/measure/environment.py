"""The machine and the environment variables that results depend on."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

TUNING = (
    *("GLOO_", "NCCL_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "MPICH_", "MPIR_", "I_MPI_", "OMPI_MCA_", "FI_", "UCX_"),
)
"""Prefixes of the variables that tune libraries; no others are recorded."""


@dataclass(frozen=True, slots=True)
class CpuShare:
    """This process's share of the machine's cores.

    Attributes:
        usable: Number of cores that it may run on.
        total: Number of cores of the machine.
        quota: CPU quota of its control group, in cores; 0 if unlimited.
    """

    usable: int
    total: int
    quota: float = 0.0

    @property
    def effective(self) -> float:
        """Available CPU time, in cores."""
        return min(float(self.usable), self.quota or float(self.usable))


def cores() -> tuple[int, int]:
    """Return the number of cores that this process may use, and the total."""
    total = os.cpu_count() or 1
    try:
        return len(os.sched_getaffinity(0)), total
    except AttributeError:  # not on macOS
        return total, total


def cpu_share(root: Path = Path("/"), usable: tuple[int, int] | None = None) -> CpuShare:
    """Return the share of this process and its ranks.

    Args:
        root: Directory that contains /sys.
        usable: Result of ``cores``; None to call it.
    """

    def words(path: str) -> list[str]:
        """Return the words of a file; [] if it is unreadable."""
        try:
            return (root / "sys/fs/cgroup" / path).read_text(encoding="utf-8").split()
        except (OSError, ValueError):
            return []

    of = usable or cores()
    numbers = words("cpu.max")  # cgroup v2, then v1
    if not numbers:
        numbers = [*words("cpu/cpu.cfs_quota_us"), *words("cpu/cpu.cfs_period_us")]
    quota, period = numbers if len(numbers) == 2 else ("", "")
    limited = quota.isdigit() and period.isdigit() and int(period)  # not "max", not "-1"
    return CpuShare(*of, int(quota) / int(period) if limited else 0.0)


def environment(*, gpu: bool) -> dict[str, str | int | float]:
    """Return the environment for the report; call it after all ranks have exited.

    Args:
        gpu: True to include the name of the GPU.
    """
    facts: dict[str, str | int | float] = {
        "host": socket.gethostname(),
        "processor": _processor(),
        "cores": cpu_share().effective,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **{name: os.environ[name] for name in sorted(os.environ) if name.startswith(TUNING)},
    }
    if gpu:
        import torch

        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


def _processor() -> str:
    """Return the processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")
