"""Checks of memory and process limits, which the ranks share."""

from __future__ import annotations

import resource
from pathlib import Path

from distdemo.doctor.records import Diagnosis, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.launcher.limits import MIB, UNLIMITED, Limit
from distdemo.view.format import short_size

SHM = "/dev/shm"  # checked, not written
MIN_SHM = 16 * MIB
"""NCCL's first segment takes 9.6 MB, and two ranks of MPICH about 10 MB (measured)."""
LOW_SHM = 256 * MIB  # the default of containers, 64 MiB, is less
LOW_LOCKED_MEMORY = 64 * MIB  # the queues of a NIC for a few peers need more


def shared_memory(system: System) -> Diagnosis:
    """Check that /dev/shm is writable and large enough."""
    path = system.root / "dev/shm"
    if not path.exists():
        return skipped(f"this system has no {SHM}")
    usage = system.disk_usage(path)
    size = f"{short_size(usage.free)} free of {short_size(usage.total)}"
    if not system.writable(path):
        problem = "can't be written to" if usage.free else "is full"
        return broken(
            f"{SHM} {problem} ({size})",
            "NCCL, MPI and DataLoader workers share memory through it.",
            "Free some space, or restore its permissions: chmod 1777 /dev/shm.",
        )
    if usage.free < LOW_SHM:
        return (broken if usage.free < MIN_SHM else warning)(
            f"{SHM} has {size}",
            "NCCL uses about 10 MB per pair of GPUs, MPI as much for a few ranks, and DataLoader "
            "workers keep whole batches there. If it is too small, ranks die of a bus error.",
            "Increase it: docker run --shm-size=1g (or --ipc=host), in Kubernetes an emptyDir of "
            "medium Memory at /dev/shm, elsewhere mount -o remount,size=1g /dev/shm.",
        )
    return fine(size)


def memory(system: System) -> Diagnosis:
    """Check how many ranks fit into memory if each one loads torch, as torchrun's do."""
    return _room(system.rank_limits("spawn")[0], enough=4, least=1)


def processes(system: System) -> Diagnosis:
    """Check the limits on the number of processes."""
    return _room(system.rank_limits("fork")[1], enough=128, least=4)


def open_files(system: System) -> Diagnosis:
    """Check how many files and sockets a process may open."""
    return _room(system.rank_limits("fork")[2], enough=128, least=16)


def _room(limit: Limit, enough: int, least: int) -> Diagnosis:
    """Return the finding for a limit on the number of ranks.

    Args:
        limit: Memory, processes or files.
        enough: Number of ranks without a warning.
        least: Number of ranks of a common world.
    """
    if limit.ranks >= UNLIMITED // 1024:
        return fine("unlimited")
    text = f"room for {max(0, limit.ranks):,} ranks"
    if limit.ranks >= enough:
        return fine(text)
    return (broken if limit.ranks < least else warning)(text, limit.why, limit.remedy)


def temporary(system: System) -> Diagnosis:
    """Check that files can be created in the temporary directory."""
    path = Path(system.environ.get("TMPDIR") or system.root / "tmp")
    if system.writable(path):
        return fine(str(path))
    return broken(
        f"no file can be created in {path}",
        "Sockets, rendezvous files and compiled kernels are kept there.",
        "Set TMPDIR to a directory that you can write to, with free space.",
    )


def locked_memory(system: System) -> Diagnosis:
    """Check the limit on locked memory, which RDMA needs to pin its buffers."""
    soft, _ = system.rlimit(resource.RLIMIT_MEMLOCK)
    text = "unlimited" if soft == resource.RLIM_INFINITY else short_size(soft)
    if not system.exists("sys/class/infiniband") and not system.exists("dev/infiniband"):
        return fine(f"{text}; there is no RDMA device")
    if 0 <= soft < LOW_LOCKED_MEMORY:
        return warning(
            f"{text}, and there is an RDMA device",
            "NCCL, UCX and libfabric pin memory for it, and fail or fall back to TCP.",
            "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity.",
        )
    return fine(text)
