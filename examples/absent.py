"""Rank 2 never calls all_reduce, so the other ranks wait for it.

distdemo run absent.py:train           # names rank 2
torchrun --nproc-per-node 4 absent.py  # the other ranks fail: Connection closed by peer
"""

import torch
import torch.distributed as dist


def train(rank, world_size):
    loss = torch.ones(1)
    if rank != 2:
        dist.all_reduce(loss)
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
