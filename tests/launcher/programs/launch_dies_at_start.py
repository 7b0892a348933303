"""A user's program one of whose ranks is killed while it unpickles its arguments."""

from __future__ import annotations

import multiprocessing
import os
import signal

import torch.distributed as dist

import distdemo


class Fragile:
    """Kills the process that unpickles it, if that is rank 1."""

    def __reduce__(self):
        return explode, ()


def explode():
    if multiprocessing.current_process().name == "rank-1":
        os.kill(os.getpid(), signal.SIGKILL)


def work(fragile):
    dist.barrier()


if __name__ == "__main__":
    try:
        distdemo.launch(work, args=(Fragile(),), world_size=2, start_method="spawn")
    except distdemo.WorldError as error:
        print(error.rank, error.what)
