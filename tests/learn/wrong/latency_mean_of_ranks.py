# expected: Rank \d: \[α, β\] is \[1\d+\.?\d*, [\d.]+\], expected \[2\d+\.?\d*, 0\.\d+\]
from math import inf

import torch.distributed as dist


def fit(sizes, times):
    mean = times.clone()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    size, time = sizes.mean(), mean.mean()
    beta = ((sizes - size) * (mean - time)).mean() / ((sizes - size) ** 2).mean()
    return (time - beta * size).item(), beta.item()


def equal_size(alpha, beta, n):
    return inf
