# number: 13
# title: A group created by members only
# world_size: 3
# expected: [9.0, 9.0, 9.0]
# outcomes: {"gloo": "hang hang hang", "mpi": "hang hang hang"}
# finding: group
# why: All ranks of the world must call new_group, including ranks that aren't members. Each rank
#   numbers the groups it creates: the first group of rank 2 is the second one of ranks 0 and 1, so
#   they wait for each other under different names. Over gloo, nothing would happen without a later
#   group. Over MPI, or NCCL with device_id, the ranks can hang at once.
# link: https://github.com/pytorch/pytorch/issues/25390
# hints: All ranks wait in new_group. How many groups has each rank created before?
# hints: Rank 2 has created none, because it is not a member of the pair.
# hints: All ranks must call dist.new_group([0, 1]), outside the if.
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
