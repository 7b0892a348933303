"""Memory, limits of processes and cores: what ranks have to share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from distdemo.doctor.records import Finding, bad, broken, fine, skipped, warning
from distdemo.doctor.system import Surroundings
from distdemo.launcher.limits import FILES_OF_ITS_OWN, FILES_PER_RANK, MIB, UNLIMITED
from distdemo.view.format import short_size

SHM = "/dev/shm"  # noqa: S108 - the place itself is what is looked at
LEAST_SHM = 16 * MIB
"""NCCL's first segment takes 9.6 MB, two ranks of MPICH some 10 MB (measured)."""
LITTLE_SHM = 256 * MIB  # a container's usual 64 MiB is less
LITTLE_TMP = 64 * MIB


def shared_memory(around: Surroundings) -> Finding:
    """Whether it is there, writable and large enough."""
    place = around.root / "dev/shm"
    found = around.room(place)
    if found is None:
        return skipped(f"this system has no {SHM}")
    free = f"{short_size(found.free)} free of {short_size(found.total)}"
    if not around.writable(place):
        return broken(
            f"{SHM} can't be written to ({free})" if found.free else f"{SHM} is full ({free})",
            "NCCL, MPI and DataLoader workers share memory through it.",
            "Make room, or give it its usual rights: chmod 1777 /dev/shm.",
        )
    if found.free < LITTLE_SHM:
        return bad(
            f"{SHM} has {free}",
            "NCCL takes some 10 MB for each pair of GPUs, MPI for each few ranks, and DataLoader "
            "workers keep whole batches there: with too little ranks die of a bus error.",
            "Give it more: docker run --shm-size=1g (or --ipc=host), in Kubernetes an emptyDir of "
            "medium Memory at /dev/shm, elsewhere mount -o remount,size=1g /dev/shm.",
            is_broken=found.free < LEAST_SHM,
        )
    return fine(free)


def ranks(around: Surroundings) -> Finding:
    """How many ranks fit into the memory, by the cheapest and the dearest start method."""
    forked, spawned = around.limits("fork")[0], around.limits("spawn")[0]
    if forked.ranks >= UNLIMITED // 1024:
        return fine("this system does not say how much is free")
    room = f"room for {forked.ranks:,} forked ranks, {spawned.ranks:,} spawned ones"
    if spawned.ranks < 4:
        return bad(
            room,
            f"{spawned.why} torchrun, mpiexec and spawn load torch in every rank.",
            "End other programs, give the container more memory, or start few ranks.",
            is_broken=forked.ranks < 2,
        )
    return fine(room)


def temporary(around: Surroundings) -> Finding:
    """The temporary directory: there, writable, with some room."""
    usual = around.root / "tmp"
    named = around.environ.get("TMPDIR", "")
    place = Path(named) if named else usual
    if not around.writable(place):
        return bad(
            f"no file can be made in {place}{', which TMPDIR names' * bool(named)}",
            "Sockets, rendezvous files and compiled kernels are kept there. Python may fall back "
            "to another place without a word; MPI and compilers fail.",
            "Set TMPDIR to a directory that you can write to.",
            is_broken=not (named and around.writable(usual)),
        )
    found = around.room(place)
    if found is not None and found.free < LITTLE_TMP:
        return warning(
            f"{place} has {short_size(found.free)} free",
            "Rendezvous files and compiled kernels are kept there.",
            "Make room, or set TMPDIR to a larger place.",
        )
    return fine(f"{place}, {short_size(found.free)} free" if found else str(place))


# ---------------------------------------------------------------------------- limits of processes


FEWEST_FILES = 128  # with less this machine can't hold 16 ranks
FEW_FILES = 1024  # the usual soft limit
LOCKED = 64 << 20  # bytes: less than what a NIC's queues of a few peers take


def open_files(around: Surroundings) -> Finding:
    """How many files, sockets included, a process may have open."""
    found = around.rlimit("RLIMIT_NOFILE")
    if found is None:
        return skipped("this system has no such limit")
    soft, hard = found
    numbers = ["unlimited" if each < 0 else f"{each:,}" for each in found]
    text = f"{numbers[0]} at most, {numbers[1]} on request"
    most = UNLIMITED if hard < 0 else hard
    ranks = max(0, (most - FILES_OF_ITS_OWN) // FILES_PER_RANK)
    if most < FEWEST_FILES or 0 <= soft < FEW_FILES:
        return bad(
            text,
            f"A launcher holds {FILES_PER_RANK} a rank, so {ranks:,} ranks at most can be started "
            "here; a rank over gloo holds a socket to every other, a DataLoader a file for each "
            "tensor in flight.",
            "ulimit -n 65536; docker run --ulimit nofile=65536; LimitNOFILE= in a service.",
            is_broken=most < FEWEST_FILES,
        )
    return fine(text)


def processes(around: Surroundings) -> Finding:
    """Compare the limits on processes with what ranks need."""
    limit = around.limits("fork")[1]
    if limit.ranks >= UNLIMITED // 1024:
        return fine("no limit is seen")
    text = f"room for {max(0, limit.ranks):,} ranks"
    if limit.ranks < 128:
        return bad(
            text,
            f"{limit.why} Threads and DataLoader workers count too.",
            "Raise ulimit -u, or the container's limit (docker run --pids-limit).",
            is_broken=limit.ranks < 4,
        )
    return fine(text)


def locked_memory(around: Surroundings) -> Finding:
    """RDMA pins its buffers, which a low limit forbids."""
    found = around.rlimit("RLIMIT_MEMLOCK")
    if found is None:
        return skipped("this system has no such limit")
    soft = found[0]
    text = "unlimited" if soft < 0 else short_size(soft)
    if not around.exists("sys/class/infiniband") and not around.exists("dev/infiniband"):
        return fine(f"{text}; there is no RDMA device that would need more")
    if 0 <= soft < LOCKED:
        return warning(
            f"{text}, and there is an RDMA device",
            "NCCL, UCX and libfabric pin memory for it, and fail or fall back to TCP.",
            "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity.",
        )
    return fine(text)


# ------------------------------------------------------------------------------------------ cores


@dataclass(frozen=True, slots=True)
class Share:
    """What of the machine's cores this process gets.

    Attributes:
        usable: those that it may run on.
        total: all that the machine has.
        quota: cores' worth of time that its control group gets; 0 for all of it.
    """

    usable: int
    total: int
    quota: float = 0.0

    @property
    def effective(self) -> float:
        """Cores' worth of time."""
        return min(float(self.usable), self.quota or float(self.usable))


def share(around: Surroundings) -> Share:
    """Of this process."""
    group = "sys/fs/cgroup/cpu"
    words = around.text(f"{group}.max").split()  # version 2 of control groups, then 1
    if len(words) == 2 and words[0].isdigit():
        return Share(*around.cores(), int(words[0]) / int(words[1]))
    quota, period = (around.number(f"{group}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return Share(*around.cores(), max(0.0, quota / period) if quota and period else 0.0)


def cores(around: Surroundings) -> Finding:
    """How many cores there are for ranks."""
    found = share(around)
    text = str(found.usable)
    if found.usable < found.total:
        text += f" of {found.total} (an affinity mask or a cpuset)"
    if found.quota and found.quota < found.usable:
        return warning(
            f"{text}, but a quota of {found.quota:g}",
            "torch counts the cores, not the quota: its threads use up the quota early in each "
            "period and then all stand still, which a waiting rank sees as a slow peer.",
            f"OMP_NUM_THREADS={max(1, int(found.quota))} or less, or a larger quota (docker run "
            "--cpus).",
        )
    if found.usable == 1:
        return warning(
            text,
            "Ranks take turns on it; MPI's, which wait by asking over and over, take it from "
            "those that they wait for.",
            "It does for learning. For anything else take a machine with a core a rank.",
        )
    return fine(text)
