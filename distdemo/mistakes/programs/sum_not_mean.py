"""Find by gradient descent the number that is nearest to all targets."""

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
