"""scatter: the root sends a different piece of its data to each rank.

torchrun --nproc-per-node 4 scatter.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

pieces = None  # only the root has data
if rank == 0:
    pieces = [torch.arange(4.0) + 10 * to for to in range(n)]  # n of shape [4]
received = torch.empty(4)  # shape [4] on every rank

dist.scatter(received, pieces, src=0)

assert torch.equal(received, torch.arange(4.0) + 10 * rank)
print(f"rank {rank} of {n} received {received.tolist()}")

dist.barrier()  # a rank that leaves early can break connections of other ranks
dist.destroy_process_group()
