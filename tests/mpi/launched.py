"""Launch worlds over MPI with the library: ``launched.py START_METHOD SCENE...``.

Prints one line of JSON per scene: the values, or the rank at fault. Before it, rank 0 prints the
shared memory that it uses. ``hold`` prints one line per rank that has started, and hangs.
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

# In /proc/PID/maps; deleted files end in "(deleted)".
SEGMENT = r"/dev/shm/.*[^)]$"  # noqa: S108 - only searched for


def add(rank: int, size: int) -> tuple[list[float], list[str]]:
    """Return results of three collectives, and on rank 0 the listening addresses."""
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
    """Kill rank 1 while the other ranks wait for it."""
    begin(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def absent(rank: int) -> None:
    """Let rank 1 never arrive."""
    begin(rank)
    if rank == 1:
        select.select([], [], [], 60)  # until the launcher kills it
    dist.all_reduce(torch.ones(4))


def family_of(root: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # it has exited, or is not a process
            children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def addresses(pids: list[int]) -> list[str]:
    """Return the addresses on which these processes listen, or nothing without ss."""
    if shutil.which("ss") is None:
        return []
    inodes = set()
    for pid in pids:
        with suppress(OSError):  # it has exited
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
    """Report that this rank has started, and wait."""
    begin(rank)
    dist.barrier()
    os.write(1, f"{os.getpid()}\n".encode())
    select.select([], [], [], 60)  # until it is killed


def begin(rank: int) -> None:
    """Connect all ranks, and print the shared memory in use. Collective."""
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        text = Path("/proc/self/maps").read_text()
        found = {Path(path).parts[3] for path in re.findall(SEGMENT, text, re.MULTILINE)}
        os.write(1, f"{json.dumps({'segments': sorted(found)})}\n".encode())


def play(scene: str, start_method: str) -> dict[str, object]:
    """Run one scene and return its result."""
    try:
        found = distdemo.launch(
            globals()[scene],
            world_size=2 if scene == "absent" else 3,  # waiting ranks keep a core busy
            backend="mpi",
            timeout=5.0 if scene == "absent" else 60.0,
            start_method=start_method,
        )
    except distdemo.WorldError as error:
        return {"rank": error.rank, "what": str(error)}
    return {"values": found}


if __name__ == "__main__":
    for each in sys.argv[2:]:
        os.write(1, f"{json.dumps(play(each, sys.argv[1]))}\n".encode())
