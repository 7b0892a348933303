"""Compute the mean of all ranks' tensors.

distdemo run mean.py:mean -- 10
torchrun --nproc-per-node 4 mean.py
"""

import torch
import torch.distributed as dist


def mean(rank, world_size, scale: float):
    tensor = torch.full((2,), scale * rank)
    print(f"I have {tensor.tolist()}")
    dist.all_reduce(tensor)
    return tensor / world_size


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(mean(dist.get_rank(), dist.get_world_size(), 10.0))
    dist.destroy_process_group()
