"""Ask rank 1 to double some numbers; rank 0 adds one to its answer."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    numbers = torch.tensor([1.0, 2.0, 3.0])
    if rank == 1:
        dist.recv(numbers, src=0)
        dist.send(numbers * 2, dst=0)
        return numbers.tolist()
    answer = torch.zeros(3)
    receiving = dist.irecv(answer, src=1)
    result = answer + 1  # wrong
    dist.send(numbers, dst=1)
    receiving.wait()
    # right: result = answer + 1
    return result.tolist()
