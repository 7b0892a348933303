"""Blocking and non-blocking point-to-point communication."""

import torch
import torch.distributed as dist


def run(rank, size):
    """Blocking: rank 0 sends to rank 1."""
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += 1
        dist.send(tensor=tensor, dst=1)
    elif rank == 1:
        dist.recv(tensor=tensor, src=0)
    print("Rank ", rank, " has data ", tensor[0])
    return tensor


def nonblocking(rank, size):
    tensor = torch.zeros(1)
    req = None
    if rank == 0:
        tensor += 1
        req = dist.isend(tensor=tensor, dst=1)
        print("Rank 0 started sending")
    elif rank == 1:
        req = dist.irecv(tensor=tensor, src=0)
        print("Rank 1 started receiving")
    if req is not None:
        req.wait()
    print("Rank ", rank, " has data ", tensor[0])
    return tensor
