# number: 15
# title: Find a silent bug: a partial gradient (a program to repair)
# hints: distdemo parity parity.py -n 2 compares the program with itself on one rank and names the
#   first tensor that differs. What does (P) mean in its column?
# hints: The parameters of the LayerNorm are the same on both ranks, but their gradients are parts.
#   They come through Enter, from the columns of one rank.
# hints: Enter.backward must add up the gradients of all ranks. all_reduce needs a tensor that it
#   may overwrite.
"""Train two layers that are split over the ranks. One call is missing: no rank hangs or raises."""

import torch
import torch.distributed as dist
from torch import nn


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, gradient):
        # right: gradient = gradient.clone()
        # right: dist.all_reduce(gradient)
        # right: return gradient
        return gradient  # wrong


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(_, part):
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_, gradient):
        return gradient


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        rank, world_size = dist.get_rank(), dist.get_world_size()
        columns = torch.randn(4, 8) / 2  # the same on all ranks
        rows = torch.randn(8, 4) / 3
        self.columns = nn.Parameter(columns.chunk(world_size, dim=1)[rank].clone())
        self.rows = nn.Parameter(rows.chunk(world_size, dim=0)[rank].clone())

    def forward(self, x):
        hidden = (Enter.apply(x) @ self.columns).relu()
        return Leave.apply(hidden @ self.rows)


def train():
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(4), Split(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        batch = torch.randn(16, 4)  # the same on all ranks
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(f"loss {train():.4f}")
    dist.destroy_process_group()
