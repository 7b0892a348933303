"""How many ranks this machine can hold, and why not more: processes, open files, memory."""

from __future__ import annotations

import os
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
RANK_MEMORY = {"spawn": 180 * MIB}
"""Private bytes of one rank by start method, measured on Linux with torch 2.13 for the CPU."""
FORKED_RANK_MEMORY = 10 * MIB
FILES_PER_RANK = 4  # the launcher's: way back, output, and multiprocessing's two
FILES_OF_ITS_OWN = 64
WIRES_PER_RANK = 2  # what a rank of MPI is wired through
UNLIMITED = sys.maxsize


@dataclass(frozen=True, slots=True)
class Limit:
    """How many ranks one resource allows, and which resource that is."""

    ranks: int
    why: str


def check_machine(world: WorldSpec, data_bytes: int = 0) -> None:
    """Refuse a world that this machine can't hold.

    Args:
        world: the ranks to start.
        data_bytes: what all ranks' tensors together need.

    Raises:
        UsageError: naming the limit and the reason.
    """
    limit = min(limits(world), key=lambda each: each.ranks)
    most = max(0, limit.ranks)
    if world.world_size > limit.ranks:
        raise UsageError(
            f"This machine can't hold {world.world_size:,} ranks: {most:,} at most.",
            limit.why,
            f"Try at most {max(1, most):,}, or give the machine more of it.",
        )
    free = room_beside(world)
    if data_bytes > free:
        raise UsageError(
            f"The tensors of {world.world_size} ranks need {memory_text(data_bytes)}.",
            f"About {memory_text(free)} of memory are free beside the ranks themselves.",
            "Choose a smaller --shape, a smaller --dtype or fewer ranks.",
        )


def limits(world: WorldSpec) -> list[Limit]:
    """Every limit that is known here."""
    memory = free_memory()
    each = _rank_memory(world)
    processes = _free_processes()
    each_opens = _files_per_rank(world)
    files = (_open_files() - FILES_OF_ITS_OWN) // each_opens
    return [
        Limit(
            memory // each, f"Memory: {memory_text(memory)} free, about {memory_text(each)} a rank."
        ),
        Limit(processes.ranks, processes.why),
        Limit(files, f"Open files: {_open_files():,} at most, {each_opens} a rank."),
    ]


@contextmanager
def open_files(world: WorldSpec) -> Iterator[None]:
    """Within the block this process's soft limit on open files is as high as the world needs."""
    before = _raise_open_files(world)
    try:
        yield
    finally:
        if before is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _raise_open_files(world: WorldSpec) -> tuple[int, int] | None:
    """Raise the soft limit where that is needed; the limits from before, None if they suffice."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    needed = world.world_size * _files_per_rank(world) + FILES_OF_ITS_OWN + _files_in_use()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return soft, hard


def check_loopback() -> None:
    """Refuse a machine (or container) whose ranks could not talk to each other.

    Raises:
        UsageError: the loopback interface is missing or down.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 9))  # a datagram socket: nothing is sent
        except OSError as error:
            raise UsageError(
                "The ranks could not reach each other on this machine.",
                f"Its loopback interface is not up: {error}.",
                "Bring it up: ip link set lo up.",
            ) from error


def free_memory() -> int:
    """Bytes that new processes can use: the machine's, or what its container allows."""
    return min(_available(), _cgroup_free())


def room_beside(world: WorldSpec) -> int:
    """Bytes that are free beside the ranks themselves, 0 or more."""
    return max(0, free_memory() - world.world_size * _rank_memory(world))


def memory_text(count: int) -> str:
    """Bytes in binary units, as memory is sold."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB"


def _files_per_rank(world: WorldSpec) -> int:
    return FILES_PER_RANK + (0 if world.mpi_start is None else WIRES_PER_RANK)


def _rank_memory(world: WorldSpec) -> int:
    return RANK_MEMORY.get(world.start_method, FORKED_RANK_MEMORY)


def _available() -> int:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return UNLIMITED


def _cgroup_free() -> int:
    """Bytes left to this process's control group (version 2, then 1).

    What its processes have read from files counts as used until somebody needs the room, so the
    inactive part of that cache is free.
    """
    for limit, used, stat, cache in (
        (
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory.current",
            "/sys/fs/cgroup/memory.stat",
            "inactive_file ",
        ),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
            "total_inactive_file ",
        ),
    ):
        most, now = _number(limit), _number(used)
        if most is not None and now is not None:
            cached = [line.split()[1] for line in _lines(stat) if line.startswith(cache)]
            return max(0, most - now + sum(map(int, cached)))
    return UNLIMITED


def _free_processes() -> Limit:
    """How many more processes may be started, and what says so."""
    found = []
    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/pids"):
        most = _number(f"{folder}/pids.max")
        if most is not None:
            mine = _number(f"{folder}/pids.current") or 0
            found.append(
                Limit(most - mine, f"Processes: the control group's pids.max is {most:,}.")
            )
    running = _running()
    for name in ("pid_max", "threads-max"):
        most = _number(f"/proc/sys/kernel/{name}")
        if most is not None:
            found.append(Limit(most - running, f"Processes: kernel.{name} is {most:,}."))
    user = _user_processes()
    if user is not None:
        found.append(Limit(user - _users_own(), f"Processes: ulimit -u is {user:,}."))
    return min(found, key=lambda limit: limit.ranks, default=Limit(UNLIMITED, "Processes."))


def _user_processes() -> int | None:
    """The limit on this user's processes; None if there is none, as for root."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY or os.geteuid() == 0 else soft


def _users_own() -> int:
    """How many threads this user has: that is what the limit counts. 0 where nobody tells."""
    count = 0
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError):  # it ended meanwhile
                    if entry.stat().st_uid == os.getuid():
                        count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def _running() -> int:
    """Threads and processes of the whole machine."""
    for line in _lines("/proc/loadavg"):
        return int(line.split()[3].split("/")[1])
    return 0


def _open_files() -> int:
    try:
        import resource
    except ImportError:
        return UNLIMITED
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def _files_in_use() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _number(path: str) -> int | None:
    """The number in a one-line file; None if there is none (``max`` means no limit)."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None
