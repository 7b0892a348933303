"""Programs whose ranks call from different places: run some with BACKEND NAME,... [wrong]."""

from __future__ import annotations

import sys
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 3
BATCHES = 2


def normed() -> DistributedDataParallel:
    """Return a model whose buffers DDP broadcasts in each forward pass."""
    return DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    )


def train(model: DistributedDataParallel) -> None:
    """Train for an epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(BATCHES):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model: torch.nn.Module) -> None:
    """Evaluate a model."""
    model.eval()
    for _ in range(2):
        model(torch.randn(3, 4))
    model.train()


def evaluated_in_the_loop(rank: int, wrong: bool) -> None:
    """Evaluate the DDP module on one rank after each epoch."""
    model = normed()
    for _ in range(EPOCHS):
        train(model)
        if rank == 0:
            evaluate(model if wrong else model.module)


def evaluated_at_the_end(rank: int, wrong: bool) -> None:
    """Evaluate the DDP module on one rank after the training."""
    model = normed()
    train(model)
    if rank == 0:
        evaluate(model if wrong else model.module)


def trained_once_more(rank: int, wrong: bool) -> None:
    """Call a function that trains once more on one rank."""
    model = normed()
    train(model)
    if wrong and rank == 1:
        train(model)
    for _ in range(EPOCHS):
        train(model)


def reduced_in_a_branch(rank: int, wrong: bool) -> None:
    """Reduce a loss on one rank only."""
    for _ in range(EPOCHS):
        loss = torch.ones(1)
        dist.all_reduce(loss)
        if rank == 0 or not wrong:
            dist.all_reduce(torch.ones(1))


def average(metrics: dict[str, float]) -> None:
    """Average metrics over all ranks."""
    for value in metrics.values():
        dist.all_reduce(torch.tensor(value))


def metrics_in_the_middle(rank: int, wrong: bool) -> None:
    """Average a metric that one rank lacks in one epoch."""
    for epoch in range(EPOCHS):
        metrics = {"loss": 1.0, "accuracy": 0.5, "recall": 0.5}
        if wrong and rank == 1 and epoch == 1:
            del metrics["recall"]
        dist.all_reduce(torch.tensor(1.0))
        average(metrics)


def skipped_by_continue(rank: int, wrong: bool) -> None:
    """Skip the rest of a step on one rank."""
    for step in range(EPOCHS):
        dist.all_reduce(torch.tensor(1.0))
        dist.all_reduce(torch.tensor(2.0))
        if wrong and rank == 1 and step == 1:
            continue
        dist.all_reduce(torch.tensor(3.0))


def in_another_order(rank: int, wrong: bool) -> None:
    """Average the same metrics in another order, which no line shows."""
    average({"loss": 1.0, "accuracy": 0.5} if rank else {"accuracy": 0.5, "loss": 1.0})


def led_by_turns(rank: int, wrong: bool) -> None:
    """Let another rank lead each step, and take branches by rank."""
    for step in range(2 * dist.get_world_size()):
        dist.all_reduce(torch.tensor(1.0))
        if step % dist.get_world_size() == rank:
            dist.all_reduce(torch.tensor(2.0))
        else:
            dist.all_reduce(torch.tensor(0.0))
    model = normed()
    if rank == 0:
        model(torch.randn(3, 4)).sum().backward()
    else:
        model(torch.randn(3, 4)).sum().backward()


def joined(rank: int, wrong: bool) -> None:
    """Train on uneven batches within DDP's join()."""
    model = normed()
    with model.join():
        for _ in range(2 + rank):
            model(torch.randn(3, 4)).sum().backward()


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's own
    backend, names, *options = sys.argv[1:]
    if backend == "mpi":
        import distdemo.mpi  # noqa: F401 - registers the backend
    dist.init_process_group(backend)
    torch.manual_seed(0)
    for name in names.split(","):
        globals()[name](dist.get_rank(), options == ["wrong"])
    dist.destroy_process_group()
