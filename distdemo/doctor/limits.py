"""Limits of processes: open files, processes, locked memory, reading each other's memory."""

from __future__ import annotations

from distdemo.doctor.seen import Seen, broken, fine, size, skipped, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.launcher.limits import FILES_OF_ITS_OWN, FILES_PER_RANK, UNLIMITED

FEWEST_FILES = 128  # with less this machine can't hold 16 ranks
FEW_FILES = 1024  # the usual soft limit
LOCKED = 64 << 20  # bytes: less than what a NIC's queues of a few peers take


def open_files(around: Surroundings) -> Seen:
    """How many files, sockets included, a process may have open."""
    found = around.rlimit("RLIMIT_NOFILE")
    if found is None:
        return skipped("this system has no such limit")
    soft, hard = found
    text = f"{_number(soft)} at most, {_number(hard)} on request"
    facts = {"soft": soft, "hard": hard}
    most = UNLIMITED if hard < 0 else hard
    ranks = max(0, (most - FILES_OF_ITS_OWN) // FILES_PER_RANK)
    if most < FEWEST_FILES:
        return broken(
            text,
            f"A launcher holds {FILES_PER_RANK} a rank, so {ranks} ranks at most can be started "
            "here; a rank over gloo holds a socket to every other.",
            "ulimit -n 65536; docker run --ulimit nofile=65536; LimitNOFILE= in a service.",
            **facts,
        )
    if 0 <= soft < FEW_FILES:
        return warning(
            text,
            "A rank over gloo holds a socket to every other rank, a DataLoader a file for each "
            'tensor in flight: "Too many open files".',
            "ulimit -n 65536; docker run --ulimit nofile=65536; LimitNOFILE= in a service.",
            **facts,
        )
    return fine(text, **facts)


def processes(around: Surroundings) -> Seen:
    """How many more processes may be started."""
    limit = around.limits("fork")[1]
    if limit.ranks >= UNLIMITED // 1024:
        return fine("no limit is seen")
    text = f"{max(0, limit.ranks):,} more can be started"
    if limit.ranks < 16:
        return broken(
            text,
            f"{limit.why} A rank is a process, and each of its threads counts too.",
            "Raise ulimit -u, or the container's limit (docker run --pids-limit).",
            more=limit.ranks,
        )
    if limit.ranks < 512:
        return warning(
            text,
            f"{limit.why} Threads count too: a rank has one a core, and DataLoader workers more.",
            "Raise ulimit -u, or the container's limit (docker run --pids-limit).",
            more=limit.ranks,
        )
    return fine(text, more=limit.ranks)


def locked_memory(around: Surroundings) -> Seen:
    """RDMA pins its buffers, which a low limit forbids."""
    found = around.rlimit("RLIMIT_MEMLOCK")
    if found is None:
        return skipped("this system has no such limit")
    soft = found[0]
    text = "unlimited" if soft < 0 else size(soft)
    if not around.exists("sys/class/infiniband") and not around.exists("dev/infiniband"):
        return fine(f"{text}; there is no RDMA device that would need more", soft=soft)
    if 0 <= soft < LOCKED:
        return warning(
            f"{text}, and there is an RDMA device",
            "NCCL, UCX and libfabric pin memory for it, and fail or fall back to TCP.",
            "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity.",
            soft=soft,
        )
    return fine(text, soft=soft)


def ptrace(around: Surroundings) -> Seen:
    """Whether ranks may copy out of each other's memory (CMA), as MPI and UCX like to."""
    scope = around.number("proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        return fine("ranks may read each other's memory")
    if scope < 2:
        return fine(f"kernel.yama.ptrace_scope is {scope}", scope=scope)
    return warning(
        f"kernel.yama.ptrace_scope is {scope}",
        "MPI and UCX copy large messages straight from one rank's memory to another's, which this "
        "forbids: they fail, or copy twice.",
        "sysctl kernel.yama.ptrace_scope=1",
        scope=scope,
    )


def _number(limit: int) -> str:
    return "unlimited" if limit < 0 else f"{limit:,}"
