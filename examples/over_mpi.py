"""Add up a number of each rank over MPI.

mpiexec -n 3 python over_mpi.py
"""

import torch
import torch.distributed as dist

import distdemo.mpi

dist.init_process_group("mpi")
tensor = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(tensor)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {tensor.item():g}")
dist.destroy_process_group()
