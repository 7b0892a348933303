"""Rank 1 ends in failure; rank 0 would wait for it for half an hour.

``crash.py raise|exit [CASE...]``: the cases come first.
"""

import sys
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from mpi.cases import tried

from distdemo.mpi import runtime

if __name__ == "__main__":
    if not dist.is_initialized():
        dist.init_process_group("mpi")
    how, *cases = sys.argv[1:]
    tried(cases)
    runtime.SHORT = 0.5  # seconds; the test would wait for them, too
    dist.all_reduce(torch.ones(1))
    # MPICH and Open MPI leave their shared memory where a rank crashes; by now every rank of this
    # host has mapped it.
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.partition("/")[2]
        if name.startswith(("dev/shm/mpich_shm_", "dev/shm/sm_segment.")):
            with suppress(FileNotFoundError):  # the other rank was first
                Path("/", name).unlink()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
        sys.stdout.write("came to the end")
    elif how == "raise":
        raise ValueError("of its own")
    else:
        sys.exit(3)
