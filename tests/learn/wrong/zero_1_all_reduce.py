# expected: called all_reduce, all_gather, expected reduce_scatter, all_gather
import torch.distributed as dist


def step(parameters, gradients, momentum, learning_rate):
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(gradients)
    mean = gradients.chunk(n)[rank]
    momentum.mul_(0.9).add_(mean / n)
    shard = parameters.chunk(n)[rank] - learning_rate * momentum
    dist.all_gather(list(parameters.chunk(n)), shard)
