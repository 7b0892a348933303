"""Add up the gradients of two layers over all ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    grads = {}
    for layer in ["conv", "head"] if rank == 0 else ["head", "conv"]:
        grads[layer] = torch.ones(4 if layer == "conv" else 2)
    # right: for _, grad in sorted(grads.items()):
    for grad in grads.values():  # wrong
        dist.all_reduce(grad)
    return grads["conv"].tolist() + grads["head"].tolist()
