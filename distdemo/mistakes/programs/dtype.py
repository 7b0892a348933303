"""Count the samples that all ranks have seen."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    seen = 100
    if rank == 1:
        seen = seen / 2  # wrong
        # right: seen = seen // 2
    total = torch.tensor([seen])
    dist.all_reduce(total)
    return total.item()
