"""broadcast: every rank gets a copy of the root's tensor.

torchrun --nproc-per-node 4 broadcast.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

tensor = torch.zeros(4)  # shape [4] on every rank
if rank == 0:
    tensor = torch.tensor([1.0, 2.0, 3.0, 4.0])  # shape [4], on the root

dist.broadcast(tensor, src=0)  # overwrites the tensor of every other rank

assert tensor.tolist() == [1.0, 2.0, 3.0, 4.0]
print(f"rank {rank} of {n} has {tensor.tolist()}")

dist.barrier()  # a rank that leaves early can break connections of other ranks
dist.destroy_process_group()
