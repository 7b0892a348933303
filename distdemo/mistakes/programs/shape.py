"""Add up the losses of all samples, whichever rank has them."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    losses = torch.full((5,), 1.0 + rank)
    if rank > 0:
        losses = losses[:3]  # rank 0 has more samples than the others
    dist.all_reduce(losses)  # wrong
    # right: losses = losses.sum()
    # right: dist.all_reduce(losses)
    return losses.sum().item()
