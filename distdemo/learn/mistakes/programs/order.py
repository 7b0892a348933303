# title: The same calls in a different order
# ranks: 2
# returns: [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
# gloo: hang hang
# mpi: wrong wrong
# finding: shape
# why: Calls are matched by order alone. A dict keeps its insertion order, and the order of a set
#   of strings differs between processes. So conv on rank 0 is matched with head on rank 1. If both
#   had the same size, they would be mixed up silently, and the sanitizer would not detect it.
# link: https://github.com/NVIDIA/apex/issues/19
# hint 1: Print the layers in the order in which each rank reduces them.
# hint 2: Rank 1 starts with head, rank 0 with conv.
# hint 3: grads.values() follows the order of the dict: sort it by name.
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
