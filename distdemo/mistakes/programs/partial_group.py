"""Add up a number within a pair of ranks, then over all ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    value = torch.tensor([1.0 + rank])
    # right: pair = dist.new_group([0, 1])
    if rank < 2:
        pair = dist.new_group([0, 1])  # wrong
        dist.all_reduce(value, group=pair)
    everyone = dist.new_group([0, 1, 2])
    dist.all_reduce(value, group=everyone)
    return value.item()
