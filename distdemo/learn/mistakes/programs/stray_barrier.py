# number: 15
# title: One barrier too many
# world_size: 3
# expected: ["step 7", "step 7", "step 7"]
# outcomes: {"gloo": "hang right right", "mpi": "hang right right"}
# finding: shift
# why: Barriers have no names: any barrier of one rank matches any barrier of another rank. The
#   extra one of rank 0 matches the first one of ranks 1 and 2, and then all are off by one. The
#   last barrier hangs, which is correct code. The sanitizer reports the first barriers that were
#   matched from different lines, and then the last one.
# link: https://github.com/pytorch/pytorch/issues/138322
# hints: How many barriers does each rank call?
# hints: Rank 0 calls three, ranks 1 and 2 call two. The last one hangs, but it is correct.
# hints: The barrier under if rank == 0 has no counterpart; the next one is for all ranks.
"""Let all ranks read a file that rank 0 writes."""

from pathlib import Path

import torch.distributed as dist


def work(rank, world_size):
    file = Path(__file__).with_suffix(".txt")
    if rank == 0:
        file.write_text("step 7")
        dist.barrier()  # wrong
    dist.barrier()  # the file is written
    text = file.read_text()
    dist.barrier()  # all ranks have read it
    if rank == 0:
        file.unlink()
    return text
