import torch
import torch.distributed as dist


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


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
    hidden = (Enter.apply(x) @ columns).relu()
    return Leave.apply(hidden @ rows)
