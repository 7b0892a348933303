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
    limit = min(limits(world), key=lambda each: each.ranks)
    if world.world_size > limit.ranks:
        if limit.ranks < 1:
            raise UsageError("This machine can't hold a single rank.", limit.why, limit.remedy)
        raise UsageError(
            f"This machine can't hold {world.world_size:,} ranks: {limit.ranks:,} at most.",
            limit.why,
            f"Try at most {limit.ranks:,}. {limit.remedy}",
        )
    free = memory_for_tensors(world)
    if data_bytes > free:
        raise UsageError(
            f"The tensors of {world.world_size} ranks need {memory_text(data_bytes)}.",
            f"About {memory_text(free)} of memory are free in addition to the ranks themselves.",
            "Use smaller tensors or fewer ranks.",
        )


def limits(world: WorldSpec) -> list[Limit]:
    """Return all known limits."""
    memory, each = free_memory(), _rank_memory(world)
    files, each_opens = _limit_on("RLIMIT_NOFILE", hard=True), _files_per_rank(world)
    needed = FILES_OF_ITS_OWN + world.world_size * each_opens
    return [
        Limit(
            memory // each,
            f"Memory: {memory_text(memory)} free, about {memory_text(each)} per rank.",
            "Stop other programs, or give the container more memory.",
        ),
        _processes(_tasks_per_rank(world)),
        Limit(
            (files - FILES_OF_ITS_OWN) // each_opens,
            f"Open files: {files:,} at most; distdemo needs {FILES_OF_ITS_OWN}, and "
            f"{each_opens} per rank.",
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
    needed = world.world_size * _files_per_rank(world) + FILES_OF_ITS_OWN + in_use
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


def _files_per_rank(world: WorldSpec) -> int:
    return FILES_PER_RANK if world.mpi_start is None else FILES_PER_MPI_RANK


def _tasks_per_rank(world: WorldSpec) -> int:
    own_group = world.user_program is not None and not world.user_program.group
    return 1 if own_group or world.mpi_start is not None else TASKS_PER_RANK


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


def memory_for_tensors(world: WorldSpec) -> int:
    """Return the bytes that are free in addition to the ranks themselves, 0 or more."""
    return max(0, free_memory() - world.world_size * _rank_memory(world))


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


def _processes(each: int) -> Limit:
    """Return the lowest limit on processes and threads.

    Args:
        each: Processes and threads per rank.
    """
    found = []
    needs = f"a rank needs {each}" if each > 1 else "a rank needs 1 or more"
    most = _number("/sys/fs/cgroup/pids.max")
    if most is not None:
        mine = _number("/sys/fs/cgroup/pids.current") or 0
        why = f"Processes: the control group's pids.max is {most:,}, {mine:,} in use; {needs}."
        found.append(Limit((most - mine) // each, why, "Raise pids.max, or the container's limit."))
    load = "".join(_lines("/proc/loadavg")).split()
    running = int(load[3].split("/")[1]) if load else 0  # threads and processes of the machine
    for name in ("pid_max", "threads-max"):
        most = _number(f"/proc/sys/kernel/{name}")
        if most is not None:
            why = f"Processes: kernel.{name} is {most:,}, {running:,} in use; {needs}."
            found.append(Limit((most - running) // each, why, f"Raise it: sysctl kernel.{name}."))
    user = _limit_on("RLIMIT_NPROC")
    if user != UNLIMITED and os.geteuid() != 0:
        mine = _user_threads()
        why = f"Processes: ulimit -u is {user:,}, {mine:,} in use; {needs}."
        remedy = "Stop other programs, or raise it: ulimit -u."
        found.append(Limit((user - mine) // each, why, remedy))
    return min(found, key=lambda limit: limit.ranks, default=Limit(UNLIMITED, "", ""))


def _user_threads() -> int:
    """Return the number of this user's threads, which the limit counts; 0 if unknown."""
    count = 0
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError):  # it has just exited
                    if entry.stat().st_uid == os.getuid():
                        count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def _limit_on(name: str, *, hard: bool = False) -> int:
    """Return a limit of this process, by its name in ``resource``."""
    found = resource.getrlimit(getattr(resource, name))[hard]
    return UNLIMITED if found == resource.RLIM_INFINITY else found


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _number(path: str) -> int | None:
    """Return the number in a one-line file, or None (``max`` means no limit)."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None
