# title: One barrier too many
# ranks: 3
# returns: 'step 7'
# gloo: hang right right
# mpi: hang right right
# finding: absent
# why: Barriers have no names: any barrier of one rank meets any barrier of another. The extra
#   one of rank 0 meets the first one of the others, and from then on they are off by one. What
#   hangs is the last barrier, which is right. The sanitizer also says which barriers met from
#   different lines.
# link: https://github.com/pytorch/pytorch/issues/138322
# hint 1: How many barriers does each rank make?
# hint 2: Rank 0 makes three, the others two. It hangs in the last one, but that one is right.
# hint 3: The barrier under if rank == 0 has no partner; the next one is for all ranks.
"""Read on all ranks what rank 0 has written."""

from pathlib import Path

import torch.distributed as dist


def work(rank, world_size):
    file = Path(__file__).with_suffix(".txt")
    if rank == 0:
        file.write_text("step 7")
        dist.barrier()  # wrong
    dist.barrier()  # it is written
    text = file.read_text()
    dist.barrier()  # all have read it
    if rank == 0:
        file.unlink()
    return text
