"""Fit α and β with one all_reduce, and predict for which size two all-reduces are equally fast."""

from math import inf, log2

import pytest
import torch
from judge import check_calls, check_payload, check_result, check_values
from latency import equal_size, fit

from distdemo.testing import traffic

ALPHA, BETA = 20_000.0, 0.5  # ns, ns per byte


@pytest.mark.ranks([1, 3, 4], timeout=20)
def test_latency(rank, world_size):
    sizes = 1024 * torch.tensor([0, 1, 2, 4, 8], dtype=torch.float64)
    errors = torch.tensor([300, -200, 500, -700, 100], dtype=torch.float64)
    slowest = ALPHA + BETA * sizes + errors
    is_slowest = torch.arange(5) % world_size == rank  # for each size, another rank
    with traffic() as used:
        alpha, beta = fit(sizes, torch.where(is_slowest, slowest, slowest - 5000))
    line = torch.linalg.lstsq(torch.stack([torch.ones(5), sizes], 1), slowest[:, None]).solution
    check_values(rank, torch.tensor([float(alpha), float(beta)]), line[:, 0].float(), "[α, β]")
    check_calls(rank, used, "all_reduce")
    check_payload(rank, used, "5 times = 5 × 8 B", 40)
    for n in (4, 8, 1024):
        size = torch.tensor(float(equal_size(ALPHA, BETA, n)))
        doubling = log2(n) * (ALPHA + BETA * size)
        ring = 2 * (n - 1) * (ALPHA + BETA * size / n)
        what = f"with {size:g} B on n = {n} ranks, the time of the ring divided by doubling's"
        check_values(rank, ring / doubling, torch.tensor(1.0), what)
    check_result(rank, equal_size(ALPHA, BETA, 2), inf)
