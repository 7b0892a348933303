"""Worlds over MPI, as a library's user has them: ``launched.py START_METHOD SCENE...``.

Prints a line of JSON for what became of each scene: the values, or who is to blame. Before it, rank
0 prints which shared memory it uses. ``hold`` prints a line for each rank that is up, and hangs.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

import distdemo

# Of /proc/PID/maps; what has no name any more ends in (deleted).
SEGMENT = r"/dev/shm/.*[^)]$"  # noqa: S108 - looked for only


def add(rank: int, size: int) -> tuple[list[float], list[str]]:
    """What an all_reduce, an object gathered and a subgroup say; rank 0: where anybody listens."""
    begin(rank)
    total = torch.full((2,), float(rank + 1))
    dist.all_reduce(total)
    names: list[str | None] = [None] * size
    dist.all_gather_object(names, f"r{rank}")
    group = dist.new_group([0, 2])
    part = torch.ones(1)
    if rank != 1:
        dist.all_reduce(part, group=group)
    right = names == [f"r{other}" for other in range(size)]
    found = sorted(set(addresses(family_of(os.getppid())))) if rank == 0 else []
    dist.barrier()
    return [*total.tolist(), *part.tolist(), float(right)], found


def killed(rank: int) -> None:
    """Rank 1 is killed while the others wait for it."""
    begin(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def absent(rank: int) -> None:
    """Rank 1 never comes."""
    begin(rank)
    if rank == 1:
        select.select([], [], [], 60)  # until the launcher ends it
    dist.all_reduce(torch.ones(4))


def family_of(root: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # it has ended, or is no process
            below.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += below.get(pid, [])
    return found


def parent_of(pid: int) -> int:
    """The process that has started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def addresses(pids: list[int]) -> list[str]:
    """Where these processes listen, as ss tells it; nothing without that."""
    if shutil.which("ss") is None:
        return []
    inodes = set()
    for pid in pids:
        with suppress(OSError):  # it has ended
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                inodes.add(str(fd.readlink())[8:-1])
    found = []
    listed = subprocess.run(["ss", "-Hltne"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        words = line.split()
        if any(f"ino:{inode}" in words for inode in inodes):
            found.append(words[3])  # after the state and two queues
    return found


def hold(rank: int) -> None:
    """Say that this rank is up, and wait."""
    begin(rank)
    dist.barrier()
    os.write(1, f"{os.getpid()}\n".encode())
    select.select([], [], [], 60)  # until it is ended


def begin(rank: int) -> None:
    """Collective: have everybody connected, and say what shared memory that took."""
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        text = Path("/proc/self/maps").read_text()
        found = {Path(path).parts[3] for path in re.findall(SEGMENT, text, re.MULTILINE)}
        os.write(1, f"{json.dumps({'segments': sorted(found)})}\n".encode())


def played(scene: str, start_method: str) -> dict[str, object]:
    """What became of one scene."""
    try:
        found = distdemo.launch(
            globals()[scene],
            world_size=2 if scene == "absent" else 3,  # those that wait keep a core busy
            backend="mpi",
            timeout=5.0 if scene == "absent" else 60.0,
            start_method=start_method,
        )
    except distdemo.WorldError as error:
        return {"rank": error.rank, "what": str(error)}
    return {"values": found}


if __name__ == "__main__":
    for each in sys.argv[2:]:
        os.write(1, f"{json.dumps(played(each, sys.argv[1]))}\n".encode())
