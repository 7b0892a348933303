"""Send a row of numbers from rank 0 to rank 1."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    row = torch.arange(4.0)
    if rank == 0:
        dist.send(row, dst=1)
    else:
        row = torch.zeros(3)  # wrong
        # right: row = torch.zeros(4)
        dist.recv(row, src=0)
    return row.tolist()
