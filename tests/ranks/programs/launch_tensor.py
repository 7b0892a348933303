"""A user's program that hands a tensor to its ranks and prints what they and it hold."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import distdemo


def work(rank, size, tensor):
    """Change the tensor, see that nobody else did, and add up."""
    tensor += rank
    dist.barrier()
    before = tensor.item()
    dist.all_reduce(tensor)
    return before, tensor.item()


if __name__ == "__main__":
    mine = torch.ones(1)
    print(distdemo.launch(work, args=(mine,), world_size=3, start_method=sys.argv[1]), mine.item())
