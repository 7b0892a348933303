"""A parallel map: 2(n−1) messages in n rounds."""

import pytest
import torch
from judge import check_calls, check_result, check_rounds, check_total, check_values
from scatter_gather import parallel_map

from distdemo.testing import traffic


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_scatter_gather(rank, world_size):
    n, worked_on = world_size, []
    rows = torch.arange(1.0, 2 * n + 1).reshape(n, 2)

    def function(row):
        worked_on.append(row.clone())
        return row * 2

    with traffic() as used:
        result = parallel_map(function, rows if rank == 0 else None, 2)
    if len(worked_on) != 1:
        raise AssertionError(f"Rank {rank} worked on {len(worked_on)} rows, expected 1.")
    check_values(rank, worked_on[0], rows[rank], "the row that it worked on")
    if rank == 0:
        check_values(rank, result, rows * 2)
    else:
        check_result(rank, result, None)
    check_calls(rank, used)
    check_total(used, f"2(n−1) rows = 2 × {n - 1} × 8 B", 2 * (n - 1) * 8)
    check_rounds(used, "n", n)
