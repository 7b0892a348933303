"""Overlap: every all_reduce starts during the backward pass and doesn't block it."""

import pytest
import torch
from ddp import overlap
from judge import check_calls, check_values

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_ddp(rank, world_size):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    batches = torch.randn(2, world_size, 5, 3)
    finish = overlap(model)
    for batch in batches:  # two steps
        means = torch.autograd.grad(loss_of(model, batch), [*model.parameters()])
        with traffic() as backward:
            loss_of(model, batch[rank]).backward()
        with traffic() as rest:
            finish()
        for (name, parameter), mean in zip(model.named_parameters(), means, strict=True):
            check_values(rank, parameter.grad, mean, f"the gradient of {name}")
            parameter.grad = None
        check_calls(rank, backward, *["all_reduce"] * len(means))
        blocking = sum(call.blocking for call in backward.calls)
        if blocking:
            raise AssertionError(f"Rank {rank}: {blocking} calls blocked backward, expected none.")
        if rest.calls:
            raise AssertionError(f"Rank {rank} made {len(rest.calls)} calls after backward.")


def loss_of(model, batch):
    return model(batch).square().mean()
