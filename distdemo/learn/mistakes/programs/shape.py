# number: 1
# title: Tensors of different sizes
# world_size: 3
# expected: [20.0, 20.0, 20.0]
# outcomes: {"gloo": "hang wrong wrong", "mpi": "right/wrong wrong wrong"}
# finding: shape
# why: No rank knows the sizes of the other ranks' tensors. On each rank gloo splits the tensor by
#   its local size, so the pieces of two ranks don't line up: some ranks add up the wrong elements
#   and return, and others wait for pieces that never arrive. Only a piece that is larger than
#   expected is detected, and aborts the process. Over MPI and NCCL, too, the call may return a
#   wrong result without an error.
# link: https://github.com/NVIDIA/nccl/issues/1417
# hints: Some ranks return a wrong result. Print losses.shape on each rank.
# hints: Rank 0 has 5 samples, ranks 1 and 2 have 3.
# hints: dist.all_reduce(losses) requires equal sizes on all ranks: add up the local losses first.
"""Add up the losses of all samples, whichever rank has them."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    losses = torch.full((5,), 1.0 + rank)
    if rank > 0:
        losses = losses[:3]  # rank 0 has more samples
    dist.all_reduce(losses)  # wrong
    # right: losses = losses.sum()
    # right: dist.all_reduce(losses)
    return losses.sum().item()
