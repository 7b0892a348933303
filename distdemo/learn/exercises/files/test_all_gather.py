"""A ring: every rank sends (n−1)·S bytes in n − 1 rounds."""

import pytest
import torch
from all_gather import all_gather
from judge import check_calls, check_rounds, check_sent, check_values

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_all_gather(rank, world_size):
    n, mine = world_size, torch.tensor([10.0 * rank, 10.0 * rank + 1])
    with traffic() as used:
        rows = all_gather(mine)
    check_values(rank, rows, torch.tensor([[10.0 * r, 10.0 * r + 1] for r in range(n)]))
    check_calls(rank, used)
    check_sent(rank, used, f"(n−1)·S = {n - 1} × 8 B", (n - 1) * 8)
    check_rounds(used, "n−1", n - 1)
