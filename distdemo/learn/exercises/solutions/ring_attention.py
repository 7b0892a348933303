import torch
import torch.distributed as dist


def attention(query, key, value):
    rank, n = dist.get_rank(), dist.get_world_size()
    block = torch.stack([key, value])
    largest = torch.full((len(query), 1), -torch.inf)
    weights, result = torch.zeros(len(query), 1), torch.zeros_like(query)
    for k in range(n):
        scores = query @ block[0].T / query.shape[1] ** 0.5
        new = torch.maximum(largest, scores.max(dim=1, keepdim=True).values)
        parts = torch.exp(scores - new)
        old = torch.exp(largest - new)
        weights = weights * old + parts.sum(dim=1, keepdim=True)
        result = result * old + parts @ block[1]
        largest = new
        if k < n - 1:
            arriving = torch.empty_like(block)
            sending = dist.isend(block, (rank + 1) % n)
            dist.recv(arriving, (rank - 1) % n)
            sending.wait()
            block = arriving
    return result / weights
