"""gather: the root gets all ranks' tensors, in rank order.

torchrun --nproc-per-node 4 gather.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

tensor = torch.arange(4.0) + 10 * rank  # shape [4] on every rank
gathered = None  # only the root receives
if rank == 0:
    gathered = [torch.empty(4) for _ in range(n)]  # n of shape [4]

dist.gather(tensor, gathered, dst=0)

if gathered is not None:
    for sender, part in enumerate(gathered):
        assert torch.equal(part, torch.arange(4.0) + 10 * sender)
    print(f"rank {rank} of {n} gathered {[part.tolist() for part in gathered]}")
else:
    print(f"rank {rank} of {n} sent {tensor.tolist()}")

dist.barrier()  # a rank that leaves early can break connections of other ranks
dist.destroy_process_group()
