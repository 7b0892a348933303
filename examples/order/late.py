import time

import torch
import torch.distributed as dist


def faulty(rank):
    for _ in range(20):
        if rank == 2:
            time.sleep(0.03)  # a slow data loader
        dist.all_reduce(torch.ones(4))


def right(rank):
    for _ in range(20):
        dist.all_reduce(torch.ones(4))
