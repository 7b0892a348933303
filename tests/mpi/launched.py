"""Launch worlds over MPI with the library: ``launched.py START_METHOD SCENE...``.

Prints one line of JSON per scene: the values, or the rank at fault. Before it, rank 0 prints the
shared memory that it uses. ``hold`` prints one line per rank that has started, and hangs.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import distdemo

# In /proc/PID/maps; deleted files end in "(deleted)".
SEGMENT = r"/dev/shm/.*[^)]$"  # only searched for


def add(rank: int) -> list[float]:
    """Return the sum of all ranks' tensors."""
    begin(rank)
    total = torch.full((2,), float(rank + 1))
    dist.all_reduce(total)
    return total.tolist()


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
    timeout = 1.0 if scene == "absent" else 60.0
    while True:
        try:
            size = 2 if scene == "absent" else 3  # waiting ranks keep a core busy
            found = distdemo.launch(
                *(globals()[scene], (), size, "mpi", timeout),
                start_method=start_method,
                sanitize=False,
            )
        except distdemo.WorldError as error:
            if "waiting in all_reduce" in str(error) or timeout >= 60:
                return {"rank": error.rank, "what": str(error)}
            timeout *= 4  # on this machine it takes longer until all are there
        else:
            return {"values": found}


if __name__ == "__main__":
    for each in sys.argv[2:]:
        os.write(1, f"{json.dumps(play(each, sys.argv[1]))}\n".encode())
