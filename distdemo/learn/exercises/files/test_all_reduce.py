"""A mean over all ranks: one all_reduce of two numbers."""

import pytest
import torch
from all_reduce import global_mean
from judge import check_calls, check_payload, check_values

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_all_reduce(rank, world_size):
    batches = [torch.arange(1.0 + r, 2.0 + 2 * r) for r in range(world_size)]
    with traffic() as used:
        mean = global_mean(batches[rank])
    check_values(rank, mean, torch.cat(batches).mean(), "the mean")
    check_calls(rank, used, "all_reduce")
    check_payload(rank, used, "2 numbers = 2 × 4 B", 8)
