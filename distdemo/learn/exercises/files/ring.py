# number: 6
# title: Ring all-reduce
# hints: If every rank passes whole tensors around the ring, each sends (n−1)·S bytes. Cut the
#   tensor into n chunks instead. Every rank should add up only a part of the numbers.
# hints: It has two phases of n − 1 rounds. In the first one, partial sums of chunks travel around
#   the ring until each rank has the complete sum of one chunk (reduce-scatter). In the second one,
#   the complete chunks travel around the ring (all-gather).
# hints: First phase, round k = 0, 1, ... rank r sends chunk (r − k) % n to its right neighbour,
#   receives chunk (r − 1 − k) % n from its left one, and adds it to its own. Which chunk of rank r
#   is complete at the end?
# hints: Rank r then has all of chunk (r + 1) % n. Second phase, round k: it sends chunk (r + 1 − k)
#   % n, and receives chunk (r − k) % n, which replaces its own. Use dist.isend, dist.recv and wait,
#   so that all ranks send and receive in the same round.
"""Ring all-reduce, which is bandwidth-optimal."""

import torch
import torch.distributed as dist


def all_reduce(tensor):
    """Add up the tensors of all ranks, in place. Use sends and receives only.

    Before, after n − 1 rounds (each rank has one complete chunk), and after 2(n−1) rounds::

        [ 0.,  1.,  2.]  # rank 0    [  ·, 33.,   ·]  # rank 0    [30., 33., 36.]  # rank 0
        [10., 11., 12.]  # rank 1    [  ·,   ·, 36.]  # rank 1    [30., 33., 36.]  # rank 1
        [20., 21., 22.]  # rank 2    [30.,   ·,   ·]  # rank 2    [30., 33., 36.]  # rank 2

    Cost: every rank sends 2(n−1)/n · S bytes in 2(n−1) rounds, where S is the size of the tensor in
    bytes. No algorithm sends less on average. With one rank, left and right are rank 0 itself:
    send nothing.

    Args:
        tensor: 1-dimensional tensor whose length is a multiple of n.
    """
    raise NotImplementedError
