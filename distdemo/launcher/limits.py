"""Limits on the number of ranks on this machine: processes, open files, memory."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.platform import system

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

MIB = 1 << 20
SPAWNED_RANK = 180 * MIB
"""Private bytes of one rank, measured on Linux with torch 2.13 for the CPU."""
FORKED_RANK = 10 * MIB
FILES_PER_RANK = 6
"""In the launcher: result pipe, output, exit, a socket of MPI, and multiprocessing's two."""
FILES_OF_ITS_OWN = 64
TASKS_PER_RANK = 4
"""A rank's process and gloo's three threads (torch 2.13). Every limit on processes counts both."""
UNLIMITED = sys.maxsize


@dataclass(frozen=True, slots=True)
class Limit:
    """Number of ranks that a resource allows, the reason, and a remedy."""

    ranks: int
    why: str
    remedy: str = ""


def check_machine(world: WorldSpec, data_bytes: int = 0) -> None:
    """Raise `UsageError` for a world that exceeds this machine's resources.

    Args:
        world: World to start.
        data_bytes: Bytes that the tensors of all ranks need together.

    Raises:
        UsageError: The world exceeds a limit, which the error names.
    """
    limit = min(limits(world), key=lambda limit: limit.ranks)
    if world.world_size > limit.ranks:
        raise UsageError(
            f"This machine can't hold {world.world_size:,} ranks: {max(0, limit.ranks):,} at most.",
            limit.why,
            limit.remedy,
        )
    free = max(0, free_memory() - world.world_size * _rank_memory(world))
    if data_bytes > free:
        raise UsageError(
            f"The tensors of {world.world_size} ranks need {data_bytes // MIB:,} MiB.",
            f"About {free // MIB:,} MiB of memory are free in addition to the ranks themselves.",
            "Use smaller tensors or fewer ranks.",
        )


def limits(world: WorldSpec) -> list[Limit]:
    """Return all known limits."""
    memory = free_memory()
    rank_memory = _rank_memory(world)
    files = _open_files()
    needed = FILES_OF_ITS_OWN + world.world_size * FILES_PER_RANK
    return [
        Limit(
            memory // rank_memory,
            f"Memory: {memory // MIB:,} MiB free, about {rank_memory // MIB} MiB per rank.",
            "Stop other programs, or give the container more memory.",
        ),
        _processes(),
        Limit(
            (files - FILES_OF_ITS_OWN) // FILES_PER_RANK,
            f"Open files: {files:,} at most; distdemo needs {FILES_OF_ITS_OWN}, and "
            f"{FILES_PER_RANK} per rank.",
            f"Start from a new shell, or raise the limit as root: ulimit -n {max(1024, needed)}.",
        ),
    ]


def check_loopback() -> None:
    """Check that ranks on this machine (or container) can reach each other.

    Raises:
        UsageError: They can't.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 9))  # a datagram socket: nothing is sent
        except OSError as error:
            raise UsageError(
                "The ranks can't reach each other on this machine.",
                f"127.0.0.1 can't be reached: {error.strerror}.",
                "As root: ip link set lo up.",
            ) from error


@contextmanager
def open_files(world: WorldSpec) -> Iterator[None]:
    """Context in which the soft limit on open files is as high as the world needs."""
    needed = world.world_size * FILES_PER_RANK + FILES_OF_ITS_OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ----------------------------------------------------------------------------------- each resource


def free_memory() -> int:
    """Return the bytes that new processes can use, on the machine or in its container."""
    free = system.free_memory()
    return UNLIMITED if free is None else free


def _rank_memory(world: WorldSpec) -> int:
    method = world.start_method
    spawns = method == "spawn" or (method == "auto" and not system.forks_safely)
    return SPAWNED_RANK if spawns else FORKED_RANK


def _processes() -> Limit:
    """Return the limit on processes and threads of this container."""
    limit = system.process_limit()
    if limit is None:
        return Limit(UNLIMITED, "")
    most, used = limit
    return Limit(
        (most - used) // TASKS_PER_RANK,
        f"Processes: the control group's pids.max is {most:,}, {used:,} in use; a rank needs "
        f"{TASKS_PER_RANK}.",
        "Raise pids.max, or the container's limit.",
    )


def _open_files() -> int:
    """Return the hard limit on open files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit
