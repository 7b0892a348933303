"""FSDP: an all_gather forward; an all_gather and a reduce_scatter backward, S bytes each."""

import pytest
import torch
from fsdp import layer
from judge import check_calls, check_payload, check_values

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_fsdp(rank, world_size):
    n, t, d, m = world_size, 2, 2 * world_size, 3
    torch.manual_seed(1)
    weight = torch.randn(d, m, requires_grad=True)
    batches = torch.randn(n, t, d)
    (batches @ weight).square().sum(dim=(1, 2)).mean().backward()
    x = batches[rank].clone().requires_grad_()
    shard = weight.detach().chunk(n)[rank].clone().requires_grad_()
    with traffic() as forward:
        output = layer(x, shard)
    check_values(rank, output.detach(), batches[rank] @ weight.detach(), "the output")
    check_calls(rank, forward, "all_gather")
    with traffic() as backward:
        output.square().sum().backward()
    check_values(rank, x.grad, 2 * output.detach() @ weight.detach().T, "the gradient of x")
    check_values(rank, shard.grad, weight.grad.chunk(n)[rank], "the gradient of the shard")
    check_calls(rank, backward, "all_gather", "reduce_scatter")
    size = 4 * d * m
    check_payload(rank, forward, f"S = {size} B", size)
    check_payload(rank, backward, f"2 S = 2 × {size} B", 2 * size)
