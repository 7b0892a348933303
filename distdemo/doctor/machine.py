"""Checks of memory, process limits and cores, which the ranks share."""

from __future__ import annotations

from pathlib import Path

from distdemo.doctor.records import Finding, bad, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.launcher.limits import FILES_OF_ITS_OWN, FILES_PER_RANK, MIB, UNLIMITED
from distdemo.measure.environment import cpu_share
from distdemo.view.format import short_size

SHM = "/dev/shm"  # noqa: S108 - checked, not written
MIN_SHM = 16 * MIB
"""NCCL's first segment takes 9.6 MB, and two ranks of MPICH about 10 MB (measured)."""
LOW_SHM = 256 * MIB  # the default of containers, 64 MiB, is less
LOW_TMP = 64 * MIB


def shared_memory(system: System) -> Finding:
    """Check that /dev/shm is writable and large enough."""
    path = system.root / "dev/shm"
    found = system.disk_space(path)
    if found is None:
        return skipped(f"this system has no {SHM}")
    free = f"{short_size(found.free)} free of {short_size(found.total)}"
    if not system.writable(path):
        return broken(
            f"{SHM} can't be written to ({free})" if found.free else f"{SHM} is full ({free})",
            "NCCL, MPI and DataLoader workers share memory through it.",
            "Free some space, or restore its permissions: chmod 1777 /dev/shm.",
        )
    if found.free < LOW_SHM:
        return bad(
            f"{SHM} has {free}",
            "NCCL uses about 10 MB per pair of GPUs, MPI as much for a few ranks, and DataLoader "
            "workers keep whole batches there. If it is too small, ranks die of a bus error.",
            "Increase it: docker run --shm-size=1g (or --ipc=host), in Kubernetes an emptyDir of "
            "medium Memory at /dev/shm, elsewhere mount -o remount,size=1g /dev/shm.",
            is_broken=found.free < MIN_SHM,
        )
    return fine(free)


def ranks(system: System) -> Finding:
    """Check how many ranks fit into memory with the start methods that use least and most."""
    forked, spawned = system.limits("fork")[0], system.limits("spawn")[0]
    if forked.ranks >= UNLIMITED // 1024:
        return fine("this system doesn't report its free memory")
    room = f"room for {forked.ranks:,} forked ranks, {spawned.ranks:,} spawned ones"
    if spawned.ranks < 4:
        return bad(
            room,
            f"{spawned.why} torchrun, mpiexec and spawn load torch in every rank.",
            "Stop other programs, give the container more memory, or start fewer ranks.",
            is_broken=forked.ranks < 2,
        )
    return fine(room)


def temporary(system: System) -> Finding:
    """Check that the temporary directory exists, is writable and has some free space."""
    default = system.root / "tmp"
    named = system.environ.get("TMPDIR", "")
    path = Path(named) if named else default
    if not system.writable(path):
        return bad(
            f"no file can be created in {path}{', set by TMPDIR' * bool(named)}",
            "Sockets, rendezvous files and compiled kernels are kept there. Python may silently "
            "use another directory; MPI and compilers fail.",
            "Set TMPDIR to a directory that you can write to.",
            is_broken=not (named and system.writable(default)),
        )
    found = system.disk_space(path)
    if found is not None and found.free < LOW_TMP:
        return warning(
            f"{path} has {short_size(found.free)} free",
            "Rendezvous files and compiled kernels are kept there.",
            "Free some space, or set TMPDIR to a larger file system.",
        )
    return fine(f"{path}, {short_size(found.free)} free" if found else str(path))


# ---------------------------------------------------------------------------- limits of processes


MIN_FILES = 128  # fewer aren't enough for 16 ranks
LOW_FILES = 1024  # the usual soft limit
LOW_LOCKED_MEMORY = 64 << 20  # bytes; the queues of a NIC for a few peers need more


def open_files(system: System) -> Finding:
    """Check how many files and sockets a process may have open."""
    found = system.rlimit("RLIMIT_NOFILE")
    if found is None:
        return skipped("this system has no such limit")
    soft, hard = found
    numbers = ["unlimited" if each < 0 else f"{each:,}" for each in found]
    text = f"{numbers[0]} at most, {numbers[1]} on request"
    most = UNLIMITED if hard < 0 else hard
    ranks = max(0, (most - FILES_OF_ITS_OWN) // FILES_PER_RANK)
    if most < MIN_FILES or 0 <= soft < LOW_FILES:
        return bad(
            text,
            f"The launcher needs {FILES_PER_RANK} per rank, enough for {ranks:,} ranks here. "
            "A gloo rank has a socket to every other rank, a DataLoader one file per tensor "
            "in flight.",
            "ulimit -n 65536; docker run --ulimit nofile=65536; LimitNOFILE= in a service.",
            is_broken=most < MIN_FILES,
        )
    return fine(text)


def processes(system: System) -> Finding:
    """Check the limits on the number of processes."""
    limit = system.limits("fork")[1]
    if limit.ranks >= UNLIMITED // 1024:
        return fine("no limit found")
    text = f"room for {max(0, limit.ranks):,} ranks"
    if limit.ranks < 128:
        return bad(
            text,
            f"{limit.why} Threads and DataLoader workers count too.",
            "Raise ulimit -u, or the container's limit (docker run --pids-limit).",
            is_broken=limit.ranks < 4,
        )
    return fine(text)


def locked_memory(system: System) -> Finding:
    """Check the limit on locked memory, which RDMA needs to pin its buffers."""
    found = system.rlimit("RLIMIT_MEMLOCK")
    if found is None:
        return skipped("this system has no such limit")
    soft = found[0]
    text = "unlimited" if soft < 0 else short_size(soft)
    if not system.exists("sys/class/infiniband") and not system.exists("dev/infiniband"):
        return fine(f"{text}; there is no RDMA device, which would need more")
    if 0 <= soft < LOW_LOCKED_MEMORY:
        return warning(
            f"{text}, and there is an RDMA device",
            "NCCL, UCX and libfabric pin memory for it, and fail or fall back to TCP.",
            "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity.",
        )
    return fine(text)


# ------------------------------------------------------------------------------------------ cores


def cores(system: System) -> Finding:
    """Check how many cores the ranks can use."""
    found = cpu_share(system.root, system.cores())
    text = str(found.usable)
    if found.usable < found.total:
        text += f" of {found.total} (an affinity mask or a cpuset)"
    if found.quota and found.quota < found.usable:
        return warning(
            f"{text}, but a quota of {found.quota:g}",
            "torch counts the cores and ignores the quota: its threads use up the quota early in "
            "each period and are then all stopped, which makes this rank slow for its peers.",
            f"Set OMP_NUM_THREADS={max(1, int(found.quota))} or less, or raise the quota (docker "
            "run --cpus).",
        )
    if found.usable == 1:
        return warning(
            text,
            "All ranks share it. MPI ranks wait by polling, which takes the core from the ranks "
            "that they are waiting for.",
            "This is enough for learning. Otherwise use a machine with one core per rank.",
        )
    return fine(text)
