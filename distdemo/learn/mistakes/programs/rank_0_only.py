# number: 5
# title: A collective on one rank only
# world_size: 3
# expected: [6.0, 6.0, 6.0]
# outcomes: {"gloo": "hang wrong wrong", "mpi": "hang wrong wrong"}
# finding: absent
# why: All ranks of a group must call a collective. Rank 0 waits for ranks 1 and 2, which never call
#   it: they continue with their own loss, which is not the mean. In a longer program their next
#   collective is matched with this one, so the hang or wrong result is far from the mistake.
# link: https://github.com/pytorch/pytorch/issues/54059
# hints: One rank waits and two have returned. Which call did those two not make?
# hints: Rank 0 waits. Ranks 1 and 2 never call all_reduce.
# hints: Only the print belongs under if rank == 0.
"""Compute the mean loss of all ranks; rank 0 prints it."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    loss = torch.tensor([3.0 * (rank + 1)])
    # right: dist.all_reduce(loss)
    if rank == 0:
        dist.all_reduce(loss)  # wrong
        print("loss:", loss.item() / world_size)
    return loss.item() / world_size
