"""Rank 1 sleeps for ever while the others wait for it."""

import time

import torch
import torch.distributed as dist


def run(rank, size):
    print("rank", rank, "is here")
    if rank == 1:
        time.sleep(100_000)
    dist.all_reduce(torch.ones(1))
