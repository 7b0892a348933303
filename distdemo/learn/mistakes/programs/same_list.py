# number: 11
# title: The same tensor n times in a list
# world_size: 3
# expected: [[[0, 0], [1, 10], [2, 20]], [[0, 0], [1, 10], [2, 20]], [[0, 0], [1, 10], [2, 20]]]
# outcomes: {"gloo": "wrong wrong wrong", "mpi": "wrong wrong wrong"}
# finding: buffers
# why: [t] * n is a list of n references to one tensor. all_gather writes every rank's row to the
#   same memory, and the last row remains.
# link: https://github.com/pytorch/pytorch/issues/5506
# hints: All rows are equal. Is rows[0] the same tensor as rows[1]?
# hints: It is the same on every rank: all rows are the last rank's.
# hints: [torch.zeros_like(mine)] * world_size holds one tensor: use a comprehension.
"""Gather the numbers of all ranks on every rank."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    mine = torch.tensor([rank, 10 * rank])
    rows = [torch.zeros_like(mine)] * world_size  # wrong
    # right: rows = [torch.zeros_like(mine) for _ in range(world_size)]
    dist.all_gather(rows, mine)
    return [row.tolist() for row in rows]
