# number: 8
# title: Both ranks receive first
# world_size: 2
# expected: [2.0, 1.0]
# outcomes: {"gloo": "hang hang", "mpi": "hang hang"}
# finding: deadlock
# why: recv returns when the message has arrived. Each rank waits for a message that the other rank
#   would send later, so neither reaches its send.
# link: https://github.com/pytorch/pytorch/issues/109401
# hints: Both ranks wait in recv. Which rank has sent something before?
# hints: Neither rank 0 nor rank 1 reaches its send.
# hints: Replace recv with irecv, which does not block, and wait for it after send.
"""Let two ranks swap their numbers."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    other = 1 - rank
    mine = torch.tensor([1.0 + rank])
    theirs = torch.zeros(1)
    dist.recv(theirs, other)  # wrong
    # right: receiving = dist.irecv(theirs, other)
    dist.send(mine, other)
    # right: receiving.wait()
    return theirs.item()
