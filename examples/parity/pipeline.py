"""Train a pipeline: each rank has some layers, and sends outputs to the rank with the next ones."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

ROWS, WIDTH = 4, 8  # of a micro-batch
MICRO_BATCHES = 4
LAYERS = 4  # a multiple of the number of ranks


class Stage(nn.Module):
    """Some layers of the model, with the names that they have in it."""

    def __init__(self, rank, world_size):
        super().__init__()
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]  # the same on all ranks
        if LAYERS % world_size:
            raise ValueError(f"{LAYERS} layers don't divide by {world_size} ranks")
        count = LAYERS // world_size
        own = range(rank * count, (rank + 1) * count)
        self.layers = nn.ModuleDict({str(number): layers[number] for number in own})

    def run(self, batch):
        for layer in self.layers.values():
            batch = layer(batch).tanh()
        return batch


def train_step(stage, batches, targets):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    inputs, outputs = [], []
    for first in batches:
        batch = first
        if rank > 0:
            batch = torch.empty_like(first)
            dist.recv(batch, rank - 1)
            batch.requires_grad_()
        output = stage.run(batch)
        if rank < last:
            dist.send(output.detach(), rank + 1)
        inputs.append(batch)
        outputs.append(output)
    for batch, output, target in zip(inputs, outputs, targets, strict=True):
        if rank == last:
            loss = mse_loss(output, target) / len(targets)
            loss.backward()
        else:
            gradient = torch.empty_like(output)
            dist.recv(gradient, rank + 1)
            output.backward(gradient)
        if rank > 0:
            dist.send(batch.grad, rank - 1)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    stage = Stage(rank, size)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    source = torch.Generator().manual_seed(1)
    for _ in range(3):
        batches = torch.randn(MICRO_BATCHES, ROWS, WIDTH, generator=source)
        targets = torch.randn(MICRO_BATCHES, ROWS, WIDTH, generator=source)
        train_step(stage, batches, targets)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
