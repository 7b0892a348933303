"""Rank 2 raises while the other ranks wait for it."""

import torch
import torch.distributed as dist


def check(rank):
    if rank == 2:
        raise ValueError("no data on rank 2")


def run(rank, size):
    print("rank", rank, "begins")
    dist.barrier()  # or gloo's ranks may still be connecting to the one that fails
    check(rank)
    dist.all_reduce(torch.ones(1))
