"""Test an average over four ranks: pytest test_average.py."""

import pytest
import torch
import torch.distributed as dist


@pytest.mark.ranks(4)
def test_average(rank, world_size):
    total = torch.full((3,), float(rank))
    dist.all_reduce(total)
    torch.testing.assert_close(total / world_size, torch.full((3,), 1.5))
