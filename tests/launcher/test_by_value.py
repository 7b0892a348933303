"""Functions that new processes can't import: of a notebook's cell, a closure, in a thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from distdemo import launch

if TYPE_CHECKING:
    from typing_extensions import assert_type

pytestmark = pytest.mark.processes


def total(rank: int) -> float:
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    return tensor.item()


def test_a_closure_and_its_values_are_carried_by_value():
    @dataclass
    class Scaled:
        value: float

    factor = torch.tensor([10.0])

    def scaled(rank: int) -> Scaled:
        return Scaled(factor.item() * total(rank))

    values = launch(scaled, world_size=2, start_method="forkserver")
    assert values == [Scaled(10.0), Scaled(10.0)]  # of the same class, also after the way back


def test_launch_in_a_thread_and_its_type():
    results: list[list[float]] = []

    def work() -> None:
        results.append(launch(lambda rank: 2 * total(rank), world_size=2))
        if TYPE_CHECKING:
            assert_type(launch(total), list[float])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert results == [[2.0, 2.0]]


PROMPT = """
import torch, torch.distributed as dist, distdemo
(torch.ones(300, 300) @ torch.ones(300, 300)).sum()
scale = 3
class Pair:
    def __init__(self, rank, total): self.rank, self.total = rank, total
def work(rank, size):
    total = torch.tensor([scale * rank])
    dist.all_reduce(total)
    return Pair(rank, total.item())
pairs = distdemo.launch(work, world_size=2)
print([(pair.rank, pair.total, type(pair) is Pair) for pair in pairs])
"""


def test_a_main_module_that_new_processes_can_not_import(start):
    """As that of a notebook, whose process has computed and can't be forked."""
    code, out, err = start("python", "-c", PROMPT).finish()
    assert (code, out) == (0, "[(0, 3, True), (1, 3, True)]\n"), err
