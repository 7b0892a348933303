# number: 5
# title: All-gather around a ring
# hints: In every round, every rank sends to the rank on its right and receives from the rank on its
#   left. What can it send in the second round that its neighbour doesn't have?
# hints: It passes on what it received in the round before. After n − 1 rounds every row has been at
#   every rank.
# hints: A send that blocks before the receive would wait forever on every rank. Start the send with
#   dist.isend, receive with dist.recv, then wait for the send.
# hints: In round k = 0, 1, ... rank r sends row (r − k) % n to rank (r + 1) % n, and receives row
#   (r − 1 − k) % n from rank (r − 1) % n.
"""All-gather around a ring."""

import torch
import torch.distributed as dist


def all_gather(tensor):
    """Return the tensors of all ranks as rows of one tensor, in rank order. Send and receive only.

    Before and after on three ranks::

        [ 0.,  1.]  # rank 0    [[0., 1.], [10., 11.], [20., 21.]]  # rank 0
        [10., 11.]  # rank 1    [[0., 1.], [10., 11.], [20., 21.]]  # rank 1
        [20., 21.]  # rank 2    [[0., 1.], [10., 11.], [20., 21.]]  # rank 2

    Cost: every rank sends (n−1)·S bytes, where S is the size of one tensor, in n − 1 rounds.
    With one rank, left and right are rank 0 itself: send nothing.
    """
    raise NotImplementedError
