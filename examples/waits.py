"""Rank 2 sleeps, and the other ranks wait for it.

distdemo run waits.py:train -n 3 --stall 2  # reports each rank's line
torchrun --nproc-per-node 3 waits.py        # waits for half an hour
"""

import time

import torch
import torch.distributed as dist


def train(rank, world_size):
    if rank == 2:
        time.sleep(3600)
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
