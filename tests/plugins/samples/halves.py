"""Library whose lines run only on ranks."""

import torch
import torch.distributed as dist


def average(rank):
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    if rank == 1:
        return (total / dist.get_world_size()).item()
    return total.item() / 2
