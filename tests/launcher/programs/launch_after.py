"""A user's program: ``launch_after.py METHOD SIZE`` computes, in torch's threads, then launches.

Of each world it prints what came back and what its own tensor holds by then; last, who is blamed
where a rank is killed while it unpickles its arguments.
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
    """Compute in torch's thread pool and communicate: a fork in the wrong moment would hang.

    Change the tensor between the two, see that nobody else did, and add up.
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
    """Kills the process that unpickles it, if that is rank 1."""

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
        # A function of a module, as a program without a file may have it, and then a rank's death.
        print(distdemo.launch(dist.get_rank, world_size=3))
        try:
            distdemo.launch(wait, args=(Fragile(),), world_size=2)
        except distdemo.WorldError as error:
            print(error.rank, error.what)
