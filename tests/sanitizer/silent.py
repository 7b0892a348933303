"""Programs that are wrong and don't hang: run one with BACKEND NAME [wrong]."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import distdemo

BATCHES = 6
BATCH = torch.ones(2, 4)


def sgd(*modules: torch.nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of these modules."""
    return torch.optim.SGD([each for module in modules for each in module.parameters()], lr=0.1)


def skipped_batch(rank: int, wrong: bool) -> None:
    """Skip one batch per rank: batch 2 on rank 1, batch 4 on the other ranks."""
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = sgd(model)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        if not (wrong and batch == (2 if rank == 1 else 4)):
            model(BATCH).sum().backward()
        optimizer.step()


def skipped_step(rank: int, wrong: bool) -> None:
    """Skip one batch per rank without a step of the optimizer."""
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = sgd(model)
    for batch in range(BATCHES):
        distdemo.step()
        if wrong and batch == (2 if rank == 1 else 4):
            continue
        optimizer.zero_grad()
        model(BATCH).sum().backward()
        optimizer.step()


def skipped_batch_in_fsdp(rank: int, wrong: bool) -> None:
    """Skip one batch per rank."""
    model = torch.nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = sgd(model)
    for batch in range(BATCHES):
        optimizer.zero_grad()
        if not (wrong and batch == (2 if rank == 1 else 4)):
            model(BATCH).sum().backward()
        optimizer.step()


def right_steps(rank: int, wrong: bool) -> None:
    """Step optimizers as right programs do."""
    first, second = (DistributedDataParallel(torch.nn.Linear(4, 4)) for _ in range(2))
    one, other, local = sgd(first), sgd(second), torch.nn.Linear(4, 1)
    if rank == 0:  # for something local
        local_optimizer = sgd(local)
        for _ in range(3):
            local(BATCH).sum().backward()
            local_optimizer.step()
    for _ in range(2):
        with first.join():  # uneven inputs
            for _ in range(2 + rank):
                first(BATCH).sum().backward()
                one.step()
    for batch in range(BATCHES):
        with first.no_sync():  # gradient accumulation
            first(BATCH).sum().backward()
        first(BATCH).sum().backward()
        one.step()
        second(first(BATCH).detach()).sum().backward()
        if batch != 2:  # a step that all ranks leave out
            other.step()


if __name__ == "__main__":
    backend, name, *options = sys.argv[1:]
    if backend == "mpi":
        import distdemo.mpi
    torch.manual_seed(0)
    dist.init_process_group(backend)
    globals()[name](dist.get_rank(), options == ["wrong"])
    dist.destroy_process_group()
