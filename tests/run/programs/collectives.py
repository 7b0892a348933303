"""The tutorial's six collectives; each rank's tensor holds its rank plus one."""

import torch
import torch.distributed as dist


def six(rank, size):
    """Return this rank's result of each, as numbers; None where it is undefined."""
    mine = torch.ones(1) * (rank + 1)
    found = {}

    tensor = mine.clone()
    dist.broadcast(tensor, src=0)
    found["broadcast"] = tensor.item()

    tensor = mine.clone()
    dist.reduce(tensor, dst=0, op=dist.ReduceOp.SUM)
    found["reduce"] = tensor.item() if rank == 0 else None

    tensor = mine.clone()
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    found["all_reduce"] = tensor.item()

    tensor = torch.zeros(1)
    pieces = [torch.ones(1) * 10 * (each + 1) for each in range(size)] if rank == 0 else None
    dist.scatter(tensor, pieces, src=0)
    found["scatter"] = tensor.item()

    parts = [torch.zeros(1) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, parts, dst=0)
    found["gather"] = [part.item() for part in parts] if parts else None

    parts = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(parts, mine)
    found["all_gather"] = [part.item() for part in parts]
    return found


def run(rank, size):
    return six(rank, size)
