"""Rank 0 has another learning rate, so its parameters drift away from those of the others.

distdemo run drift.py                 # warns, and names the first step
torchrun --nproc-per-node 4 drift.py  # trains, and says nothing
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if dist.get_rank() == 0 else 0.05)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
