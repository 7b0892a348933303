"""reduce_scatter: each rank gets its part of the sum of all ranks' data.

torchrun --nproc-per-node 4 reduce_scatter.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

# Every rank has a part for each rank: n tensors of shape [4].
parts = [torch.full((4,), 10.0 * to + rank) for to in range(n)]
result = torch.empty(4)  # shape [4] on every rank

dist.reduce_scatter(result, parts, op=dist.ReduceOp.SUM)

expected = 10.0 * rank * n + n * (n - 1) / 2  # of all parts for this rank
assert result.tolist() == [expected] * 4
print(f"rank {rank} of {n} has its part of the sum {result.tolist()}")

dist.destroy_process_group()
