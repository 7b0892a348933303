# expected: called all_reduce, all_reduce, expected all_reduce
import torch
import torch.distributed as dist


def global_mean(batch):
    both = torch.stack([batch.sum(), torch.tensor(float(len(batch)))])
    dist.all_reduce(both[:1])
    dist.all_reduce(both[1:])
    return both[0] / both[1]
