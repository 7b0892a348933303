"""A binomial tree: n − 1 messages in ⌈log2 n⌉ rounds."""

from math import ceil, log2

import pytest
import torch
from broadcast import broadcast
from judge import check_calls, check_rounds, check_total, check_values

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_broadcast(rank, world_size):
    n, expected = world_size, torch.tensor([5.0, 6.0, 7.0, 8.0])
    tensor = expected.clone() if rank == 0 else torch.zeros(4)
    with traffic() as used:
        broadcast(tensor)
    check_values(rank, tensor, expected, "the tensor")
    check_calls(rank, used)
    check_total(used, f"(n−1)·S = {n - 1} × 16 B", (n - 1) * 16)
    check_rounds(used, "⌈log2 n⌉", ceil(log2(n)))
