"""Shared memory, memory a rank, overcommitment, and the temporary directory."""

from __future__ import annotations

from pathlib import Path

from distdemo.doctor.seen import Seen, broken, fine, size, skipped, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.launcher.limits import MIB, UNLIMITED

SHM = "/dev/shm"  # noqa: S108 - the place itself is what is looked at
LEAST_SHM = 16 * MIB
"""NCCL's first segment takes 9.6 MB, two ranks of MPICH some 10 MB (measured)."""
LITTLE_SHM = 256 * MIB  # a container's usual 64 MiB is less
LITTLE_TMP = 64 * MIB
MORE_SHM = (
    "Give it more: docker run --shm-size=1g (or --ipc=host), in Kubernetes an emptyDir of medium "
    "Memory at /dev/shm, elsewhere mount -o remount,size=1g /dev/shm."
)


def shared_memory(around: Surroundings) -> Seen:
    """Whether it is there, writable and large enough."""
    place = around.root / "dev/shm"
    found = around.room(place)
    if found is None:
        return skipped(f"this system has no {SHM}")
    facts = {"total": found.total, "free": found.free}
    free = f"{size(found.free)} free of {size(found.total)}"
    if not around.writable(place):
        return broken(
            f"{SHM} can't be written to ({free})" if found.free else f"{SHM} is full ({free})",
            "NCCL, MPI and DataLoader workers share memory through it.",
            "Make room, or give it its usual rights: chmod 1777 /dev/shm.",
            **facts,
        )
    if found.free < LEAST_SHM:
        return broken(
            f"{SHM} has {free}",
            "Ranks over MPI die of a bus error, NCCL fails to create its segments, tensors can't "
            "be sent between processes.",
            MORE_SHM,
            **facts,
        )
    if found.free < LITTLE_SHM:
        return warning(
            f"{SHM} has {free}",
            "It is enough for few ranks: NCCL takes some 10 MB for each pair of GPUs, MPI for "
            "each few ranks, and DataLoader workers keep whole batches there.",
            MORE_SHM,
            **facts,
        )
    return fine(free, **facts)


def ranks(around: Surroundings) -> Seen:
    """How many ranks fit into the memory, by the cheapest and the dearest start method."""
    forked, spawned = around.limits("fork")[0], around.limits("spawn")[0]
    if forked.ranks >= UNLIMITED // 1024:
        return fine("this system does not say how much is free")
    facts = {"fork": forked.ranks, "spawn": spawned.ranks}
    room = f"room for {forked.ranks:,} forked ranks, {spawned.ranks:,} spawned ones"
    if forked.ranks < 2:
        return broken(
            room,
            f"{forked.why} A container's limit counts.",
            "End other programs, or give the container more memory.",
            **facts,
        )
    if spawned.ranks < 4:
        return warning(
            room,
            f"{spawned.why} torchrun, mpiexec and spawn load torch in every rank.",
            "End other programs, give the container more memory, or start few ranks.",
            **facts,
        )
    return fine(room, **facts)


def overcommit(around: Surroundings) -> Seen:
    """vm.overcommit_memory=2 refuses what is only reserved."""
    mode = around.number("proc/sys/vm/overcommit_memory")
    if mode is None:
        return skipped("this system does not tell")
    if mode != 2:
        return fine(f"vm.overcommit_memory is {mode}")
    return warning(
        "vm.overcommit_memory is 2",
        "Memory that is only reserved counts as used: CUDA and forked ranks reserve much more "
        "than they touch, and get ENOMEM.",
        "sysctl vm.overcommit_memory=0, or raise vm.overcommit_ratio.",
    )


def temporary(around: Surroundings) -> Seen:
    """The temporary directory: there, writable, with some room."""
    usual = around.root / "tmp"
    named = around.environ.get("TMPDIR", "")
    place = Path(named) if named else usual
    if not around.writable(place):
        return _no_temporary(place, fallback=bool(named) and around.writable(usual))
    found = around.room(place)
    if found is not None and found.free < LITTLE_TMP:
        return warning(
            f"{place} has {size(found.free)} free",
            "Rendezvous files and compiled kernels are kept there.",
            "Make room, or set TMPDIR to a larger place.",
        )
    return fine(f"{place}, {size(found.free)} free" if found else str(place))


def _no_temporary(place: Path, *, fallback: bool) -> Seen:
    if fallback:
        return warning(
            f"no file can be made in {place}, which TMPDIR names",
            "Python falls back to another place without a word; MPI, compilers and other programs "
            "fail.",
            "unset TMPDIR, or set it to a directory that you can write to.",
        )
    return broken(
        f"no file can be made in {place}",
        "Sockets, rendezvous files and compiled kernels are kept there.",
        "Set TMPDIR to a directory that you can write to.",
    )
