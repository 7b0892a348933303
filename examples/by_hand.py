"""Two linear layers split over the ranks by hand; in backward, one all_reduce is missing.

distdemo parity by_hand.py -n 2          # names the first gradient that is wrong, and why
torchrun --nproc-per-node 2 by_hand.py  # trains, and says nothing
"""

import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    """Give every rank the same input. Its gradient is the sum over all ranks."""

    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, grad):
        return grad  # missing: dist.all_reduce(grad)


class Reduce(torch.autograd.Function):
    """Add the partial outputs of all ranks."""

    @staticmethod
    def forward(_, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, grad):
        return grad


class Block(nn.Module):
    def __init__(self, width, hidden, rank, world):
        super().__init__()
        g = torch.Generator().manual_seed(5)
        up = torch.randn(hidden, width, generator=g) / width**0.5
        down = torch.randn(width, hidden, generator=g) / hidden**0.5
        self.first = nn.Linear(width, width)
        nn.init.normal_(self.first.weight, std=0.3, generator=g)
        nn.init.zeros_(self.first.bias)
        size = hidden // world
        mine = slice(rank * size, (rank + 1) * size)
        self.up = nn.Parameter(up[mine].clone())
        self.down = nn.Parameter(down[:, mine].clone())

    def forward(self, x):
        x = torch.tanh(self.first(x))
        h = torch.relu(Copy.apply(x) @ self.up.t())
        return Reduce.apply(h @ self.down.t())


def main(steps=5):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    block = Block(8, 32, rank, world)
    opt = torch.optim.SGD(block.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 8, generator=g)
        opt.zero_grad()
        block(x).square().mean().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
