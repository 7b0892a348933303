# title: A collective on one rank only
# ranks: 3
# returns: 6.0
# gloo: hang wrong wrong
# mpi: hang wrong wrong
# finding: absent
# why: A collective is a call of the whole group. Rank 0 waits in it for the others, which never
#   come: they go on with their own loss, which is not the mean. In a longer program their next
#   collective meets this one, and what hangs or is wrong is far from the mistake.
# link: https://github.com/pytorch/pytorch/issues/54059
# hint 1: One rank waits, and the others have returned. Which call did they not make?
# hint 2: Rank 0 waits. Ranks 1 and 2 never come to the all_reduce.
# hint 3: Only the print belongs under if rank == 0.
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
