"""Synchronous SGD by hand: a small model, data split across ranks, averaged gradients."""

import torch
import torch.distributed as dist


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def train(rank, size, epochs):
    torch.manual_seed(1234)
    data = torch.randn(64, 4)
    target = data @ torch.tensor([1.0, -2.0, 3.0, 0.5])
    model = torch.nn.Linear(4, 1)
    mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
    losses = []
    for _ in range(epochs):
        model.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[mine]).squeeze(1), target[mine])
        loss.backward()
        average_gradients(model)
        with torch.no_grad():  # an optimizer of torch's would import a second's worth
            for param in model.parameters():
                param.sub_(param.grad, alpha=0.1)  # type: ignore[arg-type]  # backward made it
        losses.append(loss.item())
    weights = [param.tolist() for param in model.parameters()]
    return {"first": losses[0], "last": losses[-1], "weights": weights}


def run(rank, size, epochs: int = 20):
    return train(rank, size, epochs)
