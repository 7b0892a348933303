"""all_to_all: every rank sends a different part to each rank.

torchrun --nproc-per-node 4 all_to_all.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

# Rank r sends 10r + s to rank s: n tensors of shape [2].
sent = [torch.full((2,), 10.0 * rank + to) for to in range(n)]
received = [torch.empty(2) for _ in range(n)]  # n of shape [2]

dist.all_to_all(received, sent)

for sender, part in enumerate(received):
    assert part.tolist() == [10.0 * sender + rank] * 2
print(f"rank {rank} of {n} received {[part.tolist() for part in received]}")

dist.destroy_process_group()
