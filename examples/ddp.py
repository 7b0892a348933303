"""Rank 1 has fewer batches, so the other ranks wait for it in backward().

distdemo run ddp.py                 # names rank 1
torchrun --nproc-per-node 4 ddp.py  # the other ranks fail: Connection closed by peer
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
batches = 3 if dist.get_rank() == 1 else 4
for _ in range(batches):
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
dist.destroy_process_group()
