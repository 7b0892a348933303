# number: 7
# title: The same calls in a different order
# world_size: 2
# expected: [[2.0, 2.0, 2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]]
# outcomes: {"gloo": "hang hang", "mpi": "wrong wrong"}
# finding: shape
# why: Calls are matched by order alone, so conv on rank 0 is matched with head on rank 1. If both
#   had the same size, they would be mixed up silently, and the sanitizer would not detect it. In
#   real programs the order often comes from a set of strings, which differs between processes, or
#   from a dict that ranks fill in a different order. sorted() makes it equal.
# link: https://github.com/NVIDIA/apex/issues/19
# hints: Print the layers in the order in which each rank reduces them.
# hints: Rank 1 starts with head, rank 0 with conv.
# hints: layers must have the same order on all ranks.
"""Add up the gradients of two layers over all ranks."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    grads = {"conv": torch.ones(4), "head": torch.ones(2)}
    layers = ["conv", "head"] if rank == 0 else ["head", "conv"]  # wrong
    # right: layers = sorted(grads)
    for layer in layers:
        dist.all_reduce(grads[layer])
    return grads["conv"].tolist() + grads["head"].tolist()
