"""Program of a test: torchrun --nproc-per-node 2 worker.py."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
