"""Start on all ranks with the weights of rank 0."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    weights = torch.full((3,), 1.0 + rank)
    dist.broadcast(weights, src=rank)  # wrong
    # right: dist.broadcast(weights, src=0)
    return weights.tolist()
