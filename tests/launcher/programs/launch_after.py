"""A user's program: ``launch_after.py METHOD SIZE,SIZE... STATE...``.

In a process for each state, which it brings that into, it launches a world of each of these sizes,
with a tensor. It prints the state, and of each world what came back and what its own tensor holds
by then.
"""

from __future__ import annotations

import os
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


def prepare(what):
    """Bring this process into the state that the test is about."""
    if what == "computed":
        torch.set_num_threads(2)
        _ = torch.randn(2000, 2000) @ torch.randn(2000, 2000)
    elif what == "backward":
        weight = torch.randn(500, 500, requires_grad=True)
        (weight @ weight).sum().backward()


def launched(method, sizes):
    """Launch a world of each of these sizes."""
    mine = torch.ones(1)
    for size in sizes:
        came = distdemo.launch(work, args=(mine,), world_size=size, timeout=40, start_method=method)
        print(came, mine.item(), flush=True)


if __name__ == "__main__":
    for state in sys.argv[3:]:
        print(state, flush=True)
        child = os.fork()  # from a process that has done nothing but imports
        if child == 0:
            prepare(state)
            launched(sys.argv[1], map(int, sys.argv[2].split(",")))
            break
        if os.waitpid(child, 0)[1]:
            print("failed", flush=True)
