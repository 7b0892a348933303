"""A step of ZeRO-1: a reduce_scatter and an all_gather of S bytes each."""

import pytest
import torch
from judge import check_calls, check_payload, check_values
from zero_1 import step

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_zero_1(rank, world_size):
    n, length = world_size, 4 * world_size
    parameters = torch.arange(1.0, length + 1)
    momentum = torch.zeros(length // n)
    expected, whole_momentum = parameters.clone(), torch.zeros(length)
    for number in range(1, 3):
        gradients = [number * (r + 1) * torch.arange(float(length)) for r in range(n)]
        whole_momentum = 0.9 * whole_momentum + sum(gradients) / n
        expected -= 0.1 * whole_momentum
        with traffic() as used:
            step(parameters, gradients[rank].clone(), momentum, 0.1)
        check_values(rank, parameters, expected, "parameters")
        check_values(rank, momentum, whole_momentum.chunk(n)[rank], "momentum")
        check_calls(rank, used, "reduce_scatter", "all_gather")
        check_payload(rank, used, f"2 S = 2 × {4 * length} B", 2 * 4 * length)
