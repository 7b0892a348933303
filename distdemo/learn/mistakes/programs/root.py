# number: 4
# title: A different root on each rank
# world_size: 3
# expected: [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
# outcomes: {"gloo": "hang hang hang", "mpi": "right/wrong right/wrong right/wrong"}
# finding: root
# why: src is the rank that sends, and all ranks must pass the same one. With src=rank each rank
#   believes that it is the root, and no rank receives. gloo waits for receivers until the timeout.
#   Over MPI this can work by luck; with a different library or a larger tensor it may not.
# hints: All ranks wait in the same call. What does each rank pass as src?
# hints: Ranks 1 and 2 should receive, but they send.
# hints: src=rank differs on each rank. The weights should come from rank 0.
"""Start on all ranks with the weights of rank 0."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    weights = torch.full((3,), 1.0 + rank)
    dist.broadcast(weights, src=rank)  # wrong
    # right: dist.broadcast(weights, src=0)
    return weights.tolist()
