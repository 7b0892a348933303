import torch
import torch.distributed as dist


def step(parameters, gradients, momentum, learning_rate):
    rank, n = dist.get_rank(), dist.get_world_size()
    mean = torch.empty_like(momentum)
    dist.reduce_scatter(mean, list(gradients.chunk(n)))
    momentum.mul_(0.9).add_(mean / n)
    shard = parameters.chunk(n)[rank] - learning_rate * momentum
    dist.all_gather(list(parameters.chunk(n)), shard)
