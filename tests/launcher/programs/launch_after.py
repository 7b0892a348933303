"""User program that computes in torch's threads, then launches: ``launch_after.py METHOD SIZE``.

For each world it prints the return values and its own tensor; last, the error for a rank that is
killed while it unpickles its arguments.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

import torch
import torch.distributed as dist

import distdemo


def work(rank, size, tensor):
    """Compute in torch's thread pool and communicate, which hangs after an unsafe fork.

    Also change the tensor, check that no other rank changed it, and sum it over all ranks.
    """
    torch.set_num_threads(2)
    product = torch.ones(600, 600) @ torch.ones(600, 600)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    tensor += rank
    dist.barrier()
    changed = tensor.item()
    dist.all_reduce(tensor)
    return product[0, 0].item(), total.item(), size, changed, tensor.item()


class Fragile:
    """Object that kills rank 1 when it unpickles it."""

    def __reduce__(self):
        return explode, ()


def explode():
    if multiprocessing.current_process().name == "rank-1":
        os.kill(os.getpid(), signal.SIGKILL)


def wait(fragile):
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(2)
    weight = torch.randn(1000, 1000, requires_grad=True)
    (weight @ weight).sum().backward()
    mine = torch.ones(1)
    method, size = sys.argv[1], int(sys.argv[2])
    came = distdemo.launch(work, args=(mine,), world_size=size, timeout=60, start_method=method)
    print(came, mine.item())
    if method == "auto":
        # An importable function, as a program without a file may have, and then a killed rank.
        print(distdemo.launch(dist.get_rank, world_size=3))
        try:
            distdemo.launch(wait, args=(Fragile(),), world_size=2)
        except distdemo.WorldError as error:
            print(error.rank, error.what)
