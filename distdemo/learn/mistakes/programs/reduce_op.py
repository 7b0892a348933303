# number: 3
# title: Different ReduceOps
# world_size: 3
# expected: [6.0, 6.0, 6.0]
# outcomes: {"gloo": "wrong wrong wrong", "mpi": "wrong wrong wrong"}
# finding: reduce_op
# why: gloo and MPI don't compare the ReduceOps. Each rank applies its own to the part that it
#   receives, so the result depends on which rank reduced which part. It is neither a sum nor a
#   maximum, and there is no error.
# hints: The result is neither the sum nor the maximum. Which ReduceOp does each rank pass?
# hints: Rank 0 passes a different one from ranks 1 and 2.
# hints: op must be the same on all ranks. For the maximum, make a second call.
"""Add up the losses of all ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    loss = torch.tensor([1.0 + rank])
    op = dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM  # wrong
    # right: op = dist.ReduceOp.SUM
    dist.all_reduce(loss, op)
    return loss.item()
