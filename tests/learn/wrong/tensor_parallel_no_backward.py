# expected: Rank \d: the gradient of x is wrong at \[0, 0\]
import torch
import torch.distributed as dist


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(_, part):
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_, gradient):
        return gradient


def layers(x, columns, rows):
    return Leave.apply((x @ columns).relu() @ rows)
