"""Add up the mean losses of all ranks; not every rank has a batch."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    losses = [4.0, 2.0][rank:]
    mean = sum(losses) / len(losses)  # wrong
    # right: mean = sum(losses) / max(len(losses), 1)
    total = torch.tensor([mean])
    dist.all_reduce(total)
    return total.item()
