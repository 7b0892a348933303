"""Rank 1 exits with its own exit code while the other ranks wait for it."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()  # or gloo's ranks may still be connecting to the one that leaves
if dist.get_rank() == 1:
    print("this will not do")
    sys.exit(3)
dist.all_reduce(torch.ones(1))
