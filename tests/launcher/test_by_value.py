"""Functions that new processes can't import: of a notebook's cell, a closure, in a thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from distdemo import launch

if TYPE_CHECKING:
    from typing_extensions import assert_type

pytestmark = pytest.mark.processes
NOTEBOOK = Path(__file__).parent / "programs" / "notebook.py"


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


@pytest.mark.skipif(
    not (find_spec("nbclient") and find_spec("ipykernel")),
    reason="nbclient or ipykernel is missing",
)
def test_a_notebook():
    done = subprocess.run(
        [sys.executable, NOTEBOOK], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.stdout.splitlines() == [
        "[(0, 3, True), (1, 3, True)]",
        "[3, 3]",
    ], done.stderr
