# number: 16
# title: A rank fails, other ranks wait
# world_size: 3
# expected: [5.0, 5.0, 5.0]
# outcomes: {"gloo": "lost lost error", "mpi": "lost lost error"}
# finding: absent
# why: Rank 2 raises before its all_reduce. Over gloo ranks 0 and 1 then fail, too, because the
#   connection to rank 2 is closed. That is not the cause. Over MPI they wait until they are
#   stopped. Look for the one rank whose error is not about a connection.
# link: https://github.com/pytorch/pytorch/issues/17113
# hints: Two ranks just lost a connection. Which rank has a different error?
# hints: Rank 2 has no batch.
# hints: sum(losses) / len(losses) divides by zero if there are no losses.
"""Add up the mean losses of all ranks; not every rank has a batch."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    losses = [4.0, 2.0][rank:]
    mean = sum(losses) / len(losses)  # wrong
    # right: mean = sum(losses) / max(len(losses), 1)
    total = torch.tensor([mean])
    dist.all_reduce(total)
    return total.item()
