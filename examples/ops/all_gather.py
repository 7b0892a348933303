"""all_gather: every rank gets all ranks' tensors, in rank order.

torchrun --nproc-per-node 4 all_gather.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

tensor = torch.arange(4.0) + 10 * rank  # shape [4] on every rank
gathered = [torch.empty(4) for _ in range(n)]  # n of shape [4] on every rank

dist.all_gather(gathered, tensor)

for sender, part in enumerate(gathered):
    assert torch.equal(part, torch.arange(4.0) + 10 * sender)
print(f"rank {rank} of {n} gathered {[part.tolist() for part in gathered]}")

dist.destroy_process_group()
