"""Rank 1 raises something of its own; rank 0 would wait for it for half an hour."""

import sys

import torch
import torch.distributed as dist

import distdemo.backends.mpi  # noqa: F401 - makes "mpi" a backend

dist.init_process_group("mpi")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    raise ValueError("of its own")
dist.all_reduce(torch.ones(1))
sys.stdout.write("came to the end")
