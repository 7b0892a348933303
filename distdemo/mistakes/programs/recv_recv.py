"""Let two ranks swap their numbers."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    other = 1 - rank
    mine = torch.tensor([1.0 + rank])
    theirs = torch.zeros(1)
    # right: sending = dist.isend(mine, other)
    dist.recv(theirs, other)
    dist.send(mine, other)  # wrong
    # right: sending.wait()
    return theirs.item()
