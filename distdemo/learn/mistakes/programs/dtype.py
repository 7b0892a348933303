# number: 2
# title: A tensor of a different dtype
# world_size: 3
# expected: [250, 250, 250]
# outcomes: {"gloo": "lost abort lost", "mpi": "abort/lost wrong/lost/abort abort/lost"}
# finding: dtype
# why: Each rank computes sizes from its own dtype. Rank 1 has room for a float32 of 4 bytes and
#   receives an int64 of 8. gloo then aborts the process from C++; no except clause catches that.
#   The cause is plain Python: / turns an int into a float, and torch.tensor follows.
# link: https://github.com/pytorch/pytorch/issues/150248
# hints: A process that aborts leaves no traceback. Print total.dtype on each rank.
# hints: Rank 1 passes a float32, ranks 0 and 2 an int64.
# hints: seen / 2 is a float in Python; seen // 2 is an int.
"""Count the samples that all ranks have seen."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    seen = 100
    if rank == 1:
        seen = seen / 2  # wrong
        # right: seen = seen // 2
    total = torch.tensor([seen])
    dist.all_reduce(total)
    return total.item()
