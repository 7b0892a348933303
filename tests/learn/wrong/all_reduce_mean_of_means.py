# expected: Rank \d: the mean is 3.25, expected 4\.
import torch
import torch.distributed as dist


def global_mean(batch):
    both = torch.stack([batch.mean(), torch.tensor(1.0)])
    dist.all_reduce(both)
    return both[0] / both[1]
