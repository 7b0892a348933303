"""Rank 1 leaves with a status of its own while the others wait for it."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()  # or gloo's ranks may still be connecting to the one that leaves
if dist.get_rank() == 1:
    print("this will not do")
    sys.exit(3)
dist.all_reduce(torch.ones(1))
