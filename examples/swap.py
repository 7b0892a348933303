"""Two ranks want to swap their tensors, but both send first.

distdemo run swap.py:work -n 2       # reports the deadlock at once
torchrun --nproc-per-node 2 swap.py  # waits for half an hour
"""

import torch
import torch.distributed as dist


def work(rank, world_size):
    other = 1 - rank
    mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
    dist.send(mine, other)
    dist.recv(theirs, other)
    return theirs


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(work(dist.get_rank(), dist.get_world_size()))
    dist.destroy_process_group()
