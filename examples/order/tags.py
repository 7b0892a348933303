import torch
import torch.distributed as dist

WEIGHTS, BIAS = 1, 2


def faulty(rank):
    weights, bias = torch.ones(4), torch.zeros(4)
    if rank == 0:
        sending = [dist.isend(weights, 1, tag=WEIGHTS), dist.isend(bias, 1, tag=BIAS)]
        for each in sending:
            each.wait()
    elif rank == 1:
        dist.recv(bias, 0, tag=BIAS)
        dist.recv(weights, 0, tag=WEIGHTS)


def right(rank):
    weights, bias = torch.ones(4), torch.zeros(4)
    if rank == 0:
        dist.send(weights, 1)
        dist.send(bias, 1)
    elif rank == 1:
        dist.recv(weights, 0)
        dist.recv(bias, 0)
