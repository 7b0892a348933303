"""Let two ranks swap large tensors."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    other = 1 - rank
    mine = torch.full((1_000_000,), 1.0 + rank)
    theirs = torch.zeros(1_000_000)
    dist.send(mine, other)  # wrong
    # right: sending = dist.isend(mine, other)
    dist.recv(theirs, other)
    # right: sending.wait()
    return theirs[-1].item()
