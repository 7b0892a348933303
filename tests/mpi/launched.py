"""Launch a world over MPI with the library: ``launched.py START_METHOD SCENE``.

Rank 0 prints the shared memory that it uses. ``killed`` prints the rank at fault as JSON;
``hold`` prints one line per rank that has started, and hangs.
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


def killed(rank: int) -> None:
    """Kill rank 1 while the other ranks wait for it."""
    begin(rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
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


if __name__ == "__main__":
    start_method, scene = sys.argv[1:]
    work = {"killed": killed, "hold": hold}[scene]
    try:
        distdemo.launch(work, (), 3, "mpi", 60.0, start_method=start_method, sanitize=False)
    except distdemo.WorldError as error:
        line = json.dumps({"rank": error.rank, "what": str(error)})
        os.write(1, f"{line}\n".encode())
