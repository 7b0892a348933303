"""p2p: one rank sends its tensor to another with send and recv.

torchrun --nproc-per-node 4 p2p.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # torchrun has set the rank and the world size
rank, n = dist.get_rank(), dist.get_world_size()

if rank == 0:
    tensor = torch.tensor([1.0, 2.0, 3.0, 4.0])  # shape [4]
    dist.send(tensor, dst=1)  # returns when the tensor may be changed again
    print(f"rank {rank} of {n} sent {tensor.tolist()}")
elif rank == 1:
    tensor = torch.empty(4)  # shape [4], as large as the message
    dist.recv(tensor, src=0)  # returns when the message is in the tensor
    assert tensor.tolist() == [1.0, 2.0, 3.0, 4.0]
    print(f"rank {rank} of {n} received {tensor.tolist()}")
else:
    print(f"rank {rank} of {n} takes no part")

dist.barrier()  # a rank that leaves early can break connections of other ranks
dist.destroy_process_group()
