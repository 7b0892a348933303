"""The machine: its cores, its environment, and the CPU time that other programs take from ranks.

Disturbance is measured, not inferred from the ranks' times. Before and after every launch each rank
reads how long the cores that it may use were busy, and how much CPU time it used itself. The rest
was taken by other programs, or by a hypervisor. It counts as taken from the ranks only if the cores
don't suffice for both.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdemo.platform import system

TUNING = (
    *("GLOO_", "NCCL_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "MPICH_", "MPIR_", "I_MPI_", "OMPI_MCA_", "FI_", "UCX_"),
)
"""Prefixes of the variables that tune libraries; no others are recorded."""

# ------------------------------------------------------------------------------------------- cores


def available_cores() -> float:
    """Return the CPU time that this process and its ranks can have, in cores."""
    usable = float(len(system.usable_cpus()))
    limit = system.cpu_limit()
    return usable if limit is None else min(usable, limit)


# ------------------------------------------------------------------------------------- environment


def environment(*, gpu: bool) -> dict[str, str | int | float]:
    """Return the environment for the report; call it after all ranks have exited.

    Args:
        gpu: True to include the name of the GPU.
    """
    facts: dict[str, str | int | float] = {
        "host": socket.gethostname(),
        "processor": system.processor_model() or platform.processor() or "unknown",
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **{name: os.environ[name] for name in sorted(os.environ) if name.startswith(TUNING)},
    }
    if gpu:
        import torch

        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


# -------------------------------------------------------------------------------------------- load


@dataclass(frozen=True, slots=True)
class LaunchLoad:
    """CPU time in one launch, as measured by one rank.

    Attributes:
        launch: Launch that it belongs to.
        cpus: CPUs that the rank may run on; empty if the system doesn't say.
        wall_s: Duration of the launch's measurements.
        own_s: CPU time of this rank.
        busy_s: Time that these CPUs were busy; None if unknown.
    """

    launch: int
    cpus: tuple[int, ...]
    wall_s: float
    own_s: float
    busy_s: float | None


def read_clocks(launch: int) -> LaunchLoad:
    """Return the clocks now: times since some moment in the past."""
    cpus = system.usable_cpus()
    busy = system.busy_s(cpus)
    return LaunchLoad(launch, cpus, time.perf_counter(), time.process_time(), busy)


def load_since(before: LaunchLoad) -> LaunchLoad:
    """Return what this rank has measured since it read the clocks."""
    now = read_clocks(before.launch)
    busy = None
    if before.busy_s is not None and now.busy_s is not None:
        busy = now.busy_s - before.busy_s
    wall = now.wall_s - before.wall_s
    return replace(now, wall_s=wall, own_s=now.own_s - before.own_s, busy_s=busy)


def taken_cores(
    launches: Sequence[Sequence[LaunchLoad]], hosts: Sequence[str] = ()
) -> float | None:
    """Return the cores' worth of time that others took from the ranks, on the worst set of CPUs.

    Ranks that may run on the same CPUs of a host are taken together.

    Args:
        launches: Load of each rank, in rank order, for each launch.
        hosts: Host of each rank; empty if all are on one.

    Returns:
        Cores; None without a launch, or if the system doesn't say.
    """
    sets: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for rank, load in enumerate(launches[0] if launches else ()):
        sets.setdefault((hosts[rank] if hosts else "", load.cpus), []).append(rank)
    worst = None
    for (_, cpus), ranks in sets.items():
        used = min(len(ranks), len(cpus))
        wall_s = lacking_s = 0.0
        for launch in launches:
            first = launch[ranks[0]]
            if first.busy_s is None:
                return None
            others_s = max(0.0, first.busy_s - sum(launch[rank].own_s for rank in ranks))
            lacking_s += max(0.0, others_s - (len(cpus) - used) * first.wall_s)
            wall_s += first.wall_s
        if wall_s > 0:
            worst = max(worst or 0.0, min(used, lacking_s / wall_s))
    return worst
