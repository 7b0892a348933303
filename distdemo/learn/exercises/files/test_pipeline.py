"""A pipeline: gradients as on one rank, and 2 (m + n − 2) rounds of sends and receives."""

import pytest
import torch
from judge import check_calls, check_rounds, check_values
from pipeline import train

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_pipeline(rank, world_size):
    n, m = world_size, 4
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()) for _ in range(n))
    )
    batches = torch.randn(m, 2, 3)
    targets = torch.randn(m, 2, 3)
    expected = torch.autograd.grad((model(batches) - targets).square().sum(), model.parameters())
    stage = model[rank]
    with traffic() as used:
        train(stage, list(batches), lambda output, i: (output - targets[i]).square().sum())
    mine = zip(stage.named_parameters(), expected[2 * rank :], strict=False)
    for (name, parameter), gradient in mine:
        check_values(rank, parameter.grad, gradient, f"the gradient of {name}")
    check_calls(rank, used)
    check_rounds(used, "2 (m + n − 2)", 2 * (m + n - 2))
