"""Gather the numbers of all ranks on every rank."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    mine = torch.tensor([rank, 10 * rank])
    rows = [torch.zeros_like(mine)] * world_size  # wrong
    # right: rows = [torch.zeros_like(mine) for _ in range(world_size)]
    dist.all_gather(rows, mine)
    return [row.tolist() for row in rows]
