# expected: Rank \d sent 96 B, expected at most 2\(n−1\)/n · S = 2 × 3/4 × 32 B = 48 B
import torch
import torch.distributed as dist


def all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    arrived, passed_on = torch.empty_like(tensor), tensor.clone()
    for _ in range(n - 1):
        sending = dist.isend(passed_on, (rank + 1) % n)
        dist.recv(arrived, (rank - 1) % n)
        sending.wait()
        tensor += arrived
        passed_on.copy_(arrived)
