import torch
import torch.distributed as dist


def parallel_map(function, rows, width):
    if dist.get_rank() != 0:
        row = torch.empty(width)
        dist.recv(row, 0)
        dist.send(function(row), 0)
        return None
    for rank in range(1, len(rows)):
        dist.send(rows[rank], rank)
    results = [function(rows[0])]
    for rank in range(1, len(rows)):
        results.append(torch.empty(width))
        dist.recv(results[rank], rank)
    return torch.stack(results)
