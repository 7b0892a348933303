# title: Fewer batches on one rank
# ranks: 2
# returns: 15.0
# gloo: hang wrong
# mpi: hang wrong
# finding: uneven
# why: Three batches can't be shared evenly by two ranks. In the second round rank 0 calls
#   all_reduce, and rank 1 has left the loop. With DDP the call is hidden in backward(), so
#   training hangs at the end of an epoch; DDP's join helps there, or leaving out the last
#   batches.
# link: https://github.com/pytorch/pytorch/issues/33148
# hint 1: How often does each rank go through the loop?
# hint 2: Rank 0 has two batches, rank 1 has one.
# hint 3: The all_reduce in the loop must be called equally often: move it behind the loop.
"""Add up the losses of all batches, which the ranks share."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    batches = torch.arange(6.0).split(2)  # three of them
    total = torch.tensor(0.0)
    for batch in batches[rank::world_size]:
        loss = batch.sum()
        dist.all_reduce(loss)  # wrong
        total += loss
    # right: dist.all_reduce(total)
    return total.item()
