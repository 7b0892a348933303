# expected: Rank 0 called all_gather, expected no collective call
import torch
import torch.distributed as dist


def all_gather(tensor):
    rows = torch.empty(dist.get_world_size(), *tensor.shape)
    dist.all_gather(list(rows), tensor)
    return rows
