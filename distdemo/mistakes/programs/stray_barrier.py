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
