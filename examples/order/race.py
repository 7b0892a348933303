import torch
import torch.distributed as dist


def faulty(rank):
    part = torch.full((1,), float(rank))
    if rank == 2:
        sum(range(100_000))  # usually, rank 1 is faster
    if rank in (1, 2):
        dist.send(part, 0)
    if rank == 0:
        dist.recv(part)  # from any rank
        assert part.item() == 1, "the first part is rank 2's"
        dist.recv(part)


def right(rank):
    part = torch.full((1,), float(rank))
    if rank == 2:
        sum(range(100_000))
    if rank in (1, 2):
        dist.send(part, 0)
    if rank == 0:
        for source in (1, 2):
            dist.recv(part, source)
            assert part.item() == source
