"""Limits on the number of ranks on this machine: processes, open files, memory."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distdemo.errors import UsageError

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

MIB = 1 << 20
SPAWNED_RANK = 180 * MIB
"""Private bytes of one rank, measured on Linux with torch 2.13 for the CPU."""
FORKED_RANK = 10 * MIB
FILES_PER_RANK = 4  # in the launcher: result pipe, output, and multiprocessing's two
FILES_OF_ITS_OWN = 64
FILES_PER_MPI_RANK = FILES_PER_RANK + 2
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
        if limit.ranks < 1:
            raise UsageError("This machine can't hold a single rank.", limit.why, limit.remedy)
        raise UsageError(
            f"This machine can't hold {world.world_size:,} ranks: {limit.ranks:,} at most.",
            limit.why,
            f"Try at most {limit.ranks:,}. {limit.remedy}",
        )
    free = max(0, free_memory() - world.world_size * _rank_memory(world))
    if data_bytes > free:
        raise UsageError(
            f"The tensors of {world.world_size} ranks need {memory_text(data_bytes)}.",
            f"About {memory_text(free)} of memory are free in addition to the ranks themselves.",
            "Use smaller tensors or fewer ranks.",
        )


def limits(world: WorldSpec) -> list[Limit]:
    """Return all known limits."""
    memory = free_memory()
    rank_memory = _rank_memory(world)
    files = _limit_on("RLIMIT_NOFILE", hard=True)
    rank_files = FILES_PER_RANK if world.mpi_start is None else FILES_PER_MPI_RANK
    needed = FILES_OF_ITS_OWN + world.world_size * rank_files
    own_group = world.user_program is not None and not world.user_program.group
    return [
        Limit(
            memory // rank_memory,
            f"Memory: {memory_text(memory)} free, about {memory_text(rank_memory)} per rank.",
            "Stop other programs, or give the container more memory.",
        ),
        _processes(1 if own_group or world.mpi_start is not None else TASKS_PER_RANK),
        Limit(
            (files - FILES_OF_ITS_OWN) // rank_files,
            f"Open files: {files:,} at most; distdemo needs {FILES_OF_ITS_OWN}, and "
            f"{rank_files} per rank.",
            f"Start from a new shell, or raise the limit as root: ulimit -n {max(1024, needed)}.",
        ),
    ]


def check_loopback() -> None:
    """Check that ranks on this machine (or container) can reach each other.

    Raises:
        UsageError: They can't.
    """
    reason, hint = loopback_problem()
    if reason:
        raise UsageError("The ranks can't reach each other on this machine.", f"{reason}.", hint)


def loopback_problem() -> tuple[str, str]:
    """Return why 127.0.0.1 can't be used, and what to try; two empty strings if it can."""
    reason, hint = "No interface has the address 127.0.0.1", "ip addr add 127.0.0.1/8 dev lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", 0))  # works on an interface that is down, too
            reason, hint = "The loopback interface is down", "ip link set lo up"
            probe.connect(("127.0.0.1", 9))  # a datagram socket: nothing is sent
        except OSError as error:
            return f"{reason} ({error.strerror})", f"As root: {hint}."
    return "", ""


@contextmanager
def open_files(world: WorldSpec) -> Iterator[None]:
    """Context in which the soft limit on open files is as high as the world needs."""
    in_use = 0
    with suppress(OSError):
        in_use = len(os.listdir("/proc/self/fd"))
    rank_files = FILES_PER_RANK if world.mpi_start is None else FILES_PER_MPI_RANK
    needed = world.world_size * rank_files + FILES_OF_ITS_OWN + in_use
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


# ------------------------------------------------------------------------------------------ memory


def free_memory() -> int:
    """Return the bytes that new processes can use, on the machine or in its container.

    A container's page cache counts as used until the memory is needed, so its inactive part is
    added to the free memory.
    """
    free = UNLIMITED
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    most = _number("/sys/fs/cgroup/memory.max")
    now = _number("/sys/fs/cgroup/memory.current")
    if most is None or now is None:
        return free
    stat = _lines("/sys/fs/cgroup/memory.stat")
    cached = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
    return min(free, max(0, most - now + cached))


def memory_text(count: int) -> str:
    """Format bytes in binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB"


def _rank_memory(world: WorldSpec) -> int:
    return SPAWNED_RANK if world.start_method == "spawn" else FORKED_RANK


# --------------------------------------------------------------------------------------- processes


def _processes(rank_tasks: int) -> Limit:
    """Return the lowest limit on processes and threads.

    Args:
        rank_tasks: Processes and threads per rank.
    """
    known = []
    needs = f"a rank needs {rank_tasks}" if rank_tasks > 1 else "a rank needs 1 or more"

    def add(name: str, most: int | None, used: int, remedy: str) -> None:
        if most is not None:
            why = f"Processes: {name} is {most:,}, {used:,} in use; {needs}."
            known.append(Limit((most - used) // rank_tasks, why, remedy))

    most = _number("/sys/fs/cgroup/pids.max")
    used = _number("/sys/fs/cgroup/pids.current") or 0
    remedy = "Raise pids.max, or the container's limit."
    add("the control group's pids.max", most, used, remedy)
    load = "".join(_lines("/proc/loadavg")).split()
    running = int(load[3].split("/")[1]) if load else 0  # threads and processes of the machine
    for name in ("pid_max", "threads-max"):
        most = _number(f"/proc/sys/kernel/{name}")
        add(f"kernel.{name}", most, running, f"Raise it: sysctl kernel.{name}.")
    most = _limit_on("RLIMIT_NPROC")
    if most != UNLIMITED and os.geteuid() != 0:
        add("ulimit -u", most, _user_threads(), "Stop other programs, or raise it: ulimit -u.")
    return min(known, key=lambda limit: limit.ranks, default=Limit(UNLIMITED, ""))


def _user_threads() -> int:
    """Return the number of this user's threads, which the limit counts; 0 if unknown."""
    count = 0
    for tasks in Path("/proc").glob("[0-9]*/task"):
        with suppress(OSError):  # it has just exited
            if tasks.stat().st_uid == os.getuid():
                count += len(os.listdir(tasks))
    return count


def _limit_on(name: str, *, hard: bool = False) -> int:
    """Return a limit of this process, by its name in ``resource``."""
    limit = resource.getrlimit(getattr(resource, name))[hard]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _number(path: str) -> int | None:
    """Return the number in a one-line file, or None (``max`` means no limit)."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None
