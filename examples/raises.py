"""Rank 2 requests a shape that doesn't fit its tensor. The other ranks only lose it.

distdemo run raises.py
torchrun --nproc-per-node 4 raises.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()

batch = torch.ones(4)
batch = batch.reshape(2, 3 if rank == 2 else 2)
dist.all_reduce(batch)

dist.destroy_process_group()
