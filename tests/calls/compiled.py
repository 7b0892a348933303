"""Programs with collectives for torch's compiler: right ones, and mistakes.

``distdemo run compiled.py:measured -n 2`` returns what the compiler has made of each right program.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional

SIZE = 2
X = torch.ones(4)
WORLD: Any = dist.group
wait_tensor: Any = functional.wait_tensor


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def train(module: Any, step: Callable[[], object] = lambda: None) -> None:
    """Train twice, so that a guard that fails compiles a function again."""
    for _ in range(2):
        module(torch.ones(2, 4, requires_grad=True)).sum().backward()
        step()


def functional_full_graph() -> None:
    """Begin with a functional collective in a full graph."""

    @torch.compile(backend="eager", fullgraph=True)
    def average(x: Any) -> Any:
        return functional.all_reduce(x * 2, "avg", WORLD.WORLD) + 1

    average(X)


def functional_waited() -> None:
    @torch.compile(backend="aot_eager")
    def scattered(x: Any) -> Any:
        part = functional.reduce_scatter_tensor(x * 2, "sum", 0, WORLD.WORLD)
        return wait_tensor(part) + 1

    scattered(X)


def plain() -> None:
    @torch.compile(backend="eager")
    def total(x: Any) -> Any:
        x = x * 2
        dist.all_reduce(x)
        return x + 1

    total(X)


def breaking() -> None:
    @torch.compile(backend="eager")
    def met(x: Any) -> Any:
        x = x * 2
        dist.broadcast(x, 0)
        dist.barrier()
        return x + 1

    met(X)


def ddp() -> None:
    train(torch.compile(nn.parallel.DistributedDataParallel(model()), backend="aot_eager"))


def fsdp() -> None:
    from torch.distributed.fsdp import fully_shard

    module: Any = fully_shard(model())
    train(torch.compile(module, backend="aot_eager"))


RIGHT = [functional_full_graph, plain, functional_waited, breaking, ddp, fsdp]


def measured() -> dict[str, dict[str, Any]]:
    """Return the graphs, graph breaks and warnings of each right program."""
    return {program.__name__: _measured(program) for program in RIGHT}


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _measured(program: Callable[[], None]) -> dict[str, Any]:
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    log = _Log()
    logging.getLogger("torch._dynamo").addHandler(log)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        program()
    logging.getLogger("torch._dynamo").removeHandler(log)
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "calls": counters["stats"]["calls_captured"],
        "breaks": sum(counters["graph_break"].values()),
        "warnings": [str(warning.message) for warning in shown] + log.lines,
    }


# --------------------------------------------------------------------------------------- mistakes


def different_op(rank: int) -> None:
    @torch.compile(backend="aot_eager")
    def total(x: Any) -> Any:
        dist.all_reduce(x, dist.ReduceOp.PRODUCT if rank == 1 else dist.ReduceOp.SUM)
        return x + 1

    total(X)


def different_shape(rank: int) -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def total(x: Any) -> Any:
        return functional.all_reduce(x * 2, "sum", WORLD.WORLD) + 1

    total(torch.ones(4 + rank))


def skipped_step(rank: int) -> None:
    module = nn.parallel.DistributedDataParallel(model())
    step = torch.compile(torch.optim.SGD(module.parameters(), lr=0.1).step, backend="eager")
    for number in range(4):
        module(torch.ones(2, 4)).sum().backward()
        if (rank, number) != (1, 1):
            step()


MISTAKES = {
    different_shape: ["float32[4])", "float32[5])", "in total, in a compiled graph"],
    skipped_step: [
        "Rank 1 averaged gradients of",
        "in skipped_step, in backward()",
    ],
}
"""Texts in the report on each mistake."""
if torch.__version__ >= "2.10":  # kernels can read the ReduceOp since 2.10
    texts = ["rank 0  all_reduce(SUM, ", "rank 1  all_reduce(PRODUCT, ", "in total, in a"]
    MISTAKES[different_op] = texts
