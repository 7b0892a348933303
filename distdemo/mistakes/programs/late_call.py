"""Add up the losses and the samples of all ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    loss = torch.tensor([6.0 * (rank + 1)])
    count = torch.tensor([2.0])
    # right: dist.all_reduce(loss)
    if rank != 1:  # wrong
        dist.all_reduce(loss)  # wrong
    dist.all_reduce(count)
    if rank == 1:  # wrong
        dist.all_reduce(loss)  # wrong
    return [loss.item(), count.item()]
