# number: 9
# title: Both ranks send first
# world_size: 2
# expected: [2.0, 1.0]
# outcomes: {"gloo": "hang hang", "mpi": "hang hang"}
# finding: deadlock
# why: send returns when its tensor may be changed again. Over gloo that is when the other rank
#   receives it. MPI copies a small tensor and returns immediately, so over MPI this program hangs
#   only with large tensors. This one has 3.8 MiB.
# link: https://github.com/NVIDIA/nccl/issues/479
# hints: Both ranks wait in send. Which rank receives at that point?
# hints: Neither rank 0 nor rank 1 reaches its recv.
# hints: Replace send with isend, which does not block, and wait for it after recv.
"""Let two ranks swap large tensors."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    other = 1 - rank
    mine = torch.full((1_000_000,), 1.0 + rank)
    theirs = torch.zeros(1_000_000)
    dist.send(mine, other)  # wrong
    # right: sending = dist.isend(mine, other)
    dist.recv(theirs, other)
    # right: sending.wait()
    return theirs[-1].item()
