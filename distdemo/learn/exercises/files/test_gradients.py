"""Gradient averaging: one all_reduce of all gradients."""

import pytest
import torch
from gradients import average_gradients
from judge import check_calls, check_payload, check_values

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_gradients(rank, world_size):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    for number, parameter in enumerate(model.parameters(), start=1):
        ones = torch.ones_like(parameter)
        parameter.grad = number * (rank + 1) * ones
    size = sum(parameter.nbytes for parameter in model.parameters())
    with traffic() as used:
        average_gradients(model)
    for number, (name, parameter) in enumerate(model.named_parameters(), start=1):
        mean = number * (world_size + 1) / 2 * torch.ones_like(parameter)
        check_values(rank, parameter.grad, mean, f"the gradient of {name}")
    check_calls(rank, used, "all_reduce")
    check_payload(rank, used, "all gradients", size)
