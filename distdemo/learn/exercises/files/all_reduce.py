# number: 1
# title: The mean of batches of different sizes, with one all_reduce
# hints: Ranks have batches of different sizes. Why is the mean of the ranks' means not the mean of
#   all numbers?
# hints: The mean is the sum of all numbers divided by how many there are. Both need a sum over all
#   ranks.
# hints: Two sums don't need two calls. A tensor can hold both.
"""The mean over all ranks."""

import torch
import torch.distributed as dist


def global_mean(batch):
    """Return the mean of all numbers of all ranks, as a tensor of shape [], on every rank.

    Before and after on three ranks::

        [1.]          # rank 0    3.  # rank 0
        [2., 3.]      # rank 1    3.  # rank 1
        [3., 4., 5.]  # rank 2    3.  # rank 2

    Cost: one all_reduce of at most two float32 numbers.
    """
    raise NotImplementedError
