"""Give the number of the first rank of a pair to the second."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = pairs[rank // 2]
    value = torch.tensor([1.0 + rank])
    dist.broadcast(value, src=0, group=pair)  # wrong
    # right: dist.broadcast(value, group_src=0, group=pair)
    return value.item()
