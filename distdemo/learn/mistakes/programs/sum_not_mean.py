# number: 17
# title: Gradients not divided by n
# world_size: 4
# expected: [3.9375, 3.9375, 3.9375, 3.9375]
# outcomes: {"gloo": "wrong wrong wrong wrong", "mpi": "wrong wrong wrong wrong"}
# why: All ranks make the same calls, so no tool that compares calls can detect it. The sum of four
#   gradients makes a step four times as long: the weight jumps from 0 to 9 and back, around 4.5.
#   DDP divides by the world size; code that reduces gradients by hand must divide, too.
# link: https://github.com/facebookresearch/dinov3/pull/250
# hints: Print the weight after each step: it jumps over the target and back.
# hints: It is the same on every rank.
# hints: all_reduce leaves the sum of all gradients in grad; the step requires their mean.
"""Find the number nearest to all targets by gradient descent."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    target = torch.tensor([3.0 + rank])
    weight = torch.zeros(1, requires_grad=True)
    for _ in range(3):
        loss = (weight - target).square().sum()
        (grad,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(grad)
        with torch.no_grad():
            weight -= 0.25 * grad  # wrong
            # right: weight -= 0.25 * grad / world_size
    return weight.item()
