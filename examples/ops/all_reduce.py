"""all_reduce: every rank gets the sum of all ranks' tensors.

torchrun --nproc-per-node 4 all_reduce.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

tensor = torch.full((4,), 1.0 + rank)  # shape [4] on every rank: 1s, 2s, ...

dist.all_reduce(tensor, op=dist.ReduceOp.SUM)  # in place

assert tensor.tolist() == [n * (n + 1) / 2] * 4  # 1 + 2 + ... + n
print(f"rank {rank} of {n} has the sum {tensor.tolist()}")

dist.destroy_process_group()
