"""Rank 1 sleeps far too long while the other ranks wait for it."""

import threading

import torch
import torch.distributed as dist


def run(rank, size):
    print("rank", rank, "is here")
    if rank == 1:
        threading.Event().wait(600)
    dist.all_reduce(torch.ones(1))
