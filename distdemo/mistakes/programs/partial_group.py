# title: A group made by members only
# ranks: 3
# returns: 9.0
# gloo: hang hang hang
# mpi: hang hang hang
# finding: group
# why: new_group is a call of the whole world, also of ranks that will not be members. Each rank
#   numbers the groups that it makes: the first group of rank 2 is the second one of the others,
#   so they wait for each other under different names. If no group came after it, nothing would
#   happen, until somebody adds one.
# link: https://github.com/pytorch/pytorch/issues/25390
# hint 1: All ranks wait in a new_group. How many groups has each rank made before?
# hint 2: Rank 2 has made none, because it is not a member of the pair.
# hint 3: dist.new_group([0, 1]) has to be called by all ranks, outside the if.
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
