# number: 4
# title: Broadcast by a binomial tree of sends and receives
# hints: After the first round two ranks have the tensor. Both can send in the second round. How
#   many ranks have it after the third?
# hints: In the round with distance d = 1, 2, 4, ... every rank r < d has the tensor and sends it to
#   rank r + d, if there is such a rank.
# hints: So rank r first receives from rank r − d, where d is the largest power of 2 that is at most
#   r. Rank 0 receives nothing. Then it sends with the distances 2d, 4d, ...
# hints: In a loop over d = 1, 2, 4, ... < n, a rank r < d sends to r + d if that is < n; a rank d ≤
#   r < 2d receives from r − d; all other ranks do nothing yet.
"""Broadcast, from sends and receives."""

import torch.distributed as dist


def broadcast(tensor):
    """Copy rank 0's tensor into the tensor of every rank. Use dist.send and dist.recv only.

    Before and after on four ranks::

        [5., 6.]  # rank 0      [5., 6.]  # rank 0
        [0., 0.]  # rank 1      [5., 6.]  # rank 1
        [0., 0.]  # rank 2      [5., 6.]  # rank 2
        [0., 0.]  # rank 3      [5., 6.]  # rank 3

    Cost: n − 1 messages in ⌈log2 n⌉ rounds, because every rank that has the tensor helps.
    With one rank, send nothing: a rank can't send to itself.
    """
    raise NotImplementedError
