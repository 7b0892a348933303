"""reduce: the root gets the sum of all ranks' tensors.

torchrun --nproc-per-node 4 reduce.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

tensor = torch.full((4,), 1.0 + rank)  # shape [4] on every rank: 1s, 2s, ...

dist.reduce(tensor, dst=0, op=dist.ReduceOp.SUM)  # in place

if rank == 0:  # other ranks' tensors are undefined now
    assert tensor.tolist() == [n * (n + 1) / 2] * 4  # 1 + 2 + ... + n
    print(f"rank {rank} of {n} has the sum {tensor.tolist()}")
else:
    print(f"rank {rank} of {n} has no result")

dist.barrier()  # a rank that leaves early can break connections of other ranks
dist.destroy_process_group()
