# number: 6
# title: Fewer batches on one rank
# world_size: 2
# expected: [15.0, 15.0]
# outcomes: {"gloo": "hang wrong", "mpi": "hang wrong"}
# finding: uneven
# why: Three batches can't be split evenly between two ranks. In the second iteration rank 0 calls
#   all_reduce, but rank 1 has left the loop. With DDP the call is inside backward(), so training
#   hangs at the end of an epoch; use DDP's join() there, or drop the last batches.
# link: https://github.com/pytorch/pytorch/issues/33148
# hints: How many iterations does each rank run?
# hints: Rank 0 has two batches, rank 1 has one.
# hints: All ranks must call all_reduce the same number of times: move it after the loop.
"""Add up the losses of all batches, split over the ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    batches = torch.arange(6.0).split(2)  # three batches
    total = torch.tensor(0.0)
    for batch in batches[rank::world_size]:
        loss = batch.sum()
        dist.all_reduce(loss)  # wrong
        total += loss
    # right: dist.all_reduce(total)
    return total.item()
