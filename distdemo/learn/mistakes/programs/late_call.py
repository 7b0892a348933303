# number: 18
# title: A call made too late
# world_size: 3
# expected: [[36.0, 6.0], [36.0, 6.0], [36.0, 6.0]]
# outcomes: {"gloo": "wrong wrong wrong", "mpi": "wrong wrong wrong"}
# finding: shift
# why: Rank 1 makes the same two calls in a different order. Both add up one float32, so they match,
#   and the count of one rank is added to the losses of the other ranks. It might be intended, so
#   the sanitizer only warns that ranks made one call from different lines.
# hints: Which numbers were added up? Print loss and count on each rank, before and after.
# hints: Rank 1 reduces the count first and the loss afterwards.
# hints: All ranks must reduce the loss on the same line, before the count.
"""Add up the losses and the samples of all ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    loss = torch.tensor([6.0 * (rank + 1)])
    count = torch.tensor([2.0])
    if rank != 1:  # wrong
        dist.all_reduce(loss)  # wrong
    # right: dist.all_reduce(loss)
    dist.all_reduce(count)
    if rank == 1:  # wrong
        dist.all_reduce(loss)  # wrong
    return [loss.item(), count.item()]
