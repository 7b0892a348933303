from math import inf, log2

import torch.distributed as dist


def fit(sizes, times):
    slowest = times.clone()
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    size, time = sizes.mean(), slowest.mean()
    beta = ((sizes - size) * (slowest - time)).mean() / ((sizes - size) ** 2).mean()
    return (time - beta * size).item(), beta.item()


def equal_size(alpha, beta, n):
    more_messages = 2 * (n - 1) - log2(n)
    fewer_bytes = log2(n) - 2 * (n - 1) / n  # as a factor of S
    return more_messages * alpha / (fewer_bytes * beta) if fewer_bytes else inf
