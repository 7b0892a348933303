"""Rank 1 raises an exception; rank 0 would wait for it for half an hour."""

import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

from distdemo.mpi import runtime

if __name__ == "__main__":
    runtime.FAILED_EXIT_TIMEOUT_S = 0.5  # to shorten the test
    dist.all_reduce(torch.ones(1))
    # MPICH and Open MPI leave shared memory behind if a rank crashes. Every rank of this host has
    # mapped it already.
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.partition("/")[2]
        if name.startswith(("dev/shm/mpich_shm_", "dev/shm/sm_segment.")):
            with suppress(FileNotFoundError):  # the other rank deleted it
                Path("/", name).unlink()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
        sys.stdout.write("reached the end")
    else:
        raise ValueError("rank 1 crashed")
