"""Test what a block sends and calls: pytest test_traffic.py."""

import pytest
import torch
import torch.distributed as dist

from distdemo.testing import traffic


@pytest.mark.ranks(4)
def test_one_bucket(rank):
    gradients = [torch.ones(1000), torch.ones(10)]
    with traffic() as used:
        bucket = torch.cat(gradients)
        dist.all_reduce(bucket)
    assert [(call.op, call.payload_bytes) for call in used.calls] == [("all_reduce", 4040)]


@pytest.mark.ranks(4)
def test_ring(rank, world_size):
    mine, theirs = torch.ones(6), torch.empty(6)
    with traffic() as used:
        for _ in range(world_size - 1):
            sending = dist.isend(mine, (rank + 1) % world_size)
            dist.recv(theirs, (rank - 1) % world_size)
            sending.wait()
            mine.copy_(theirs)
    assert used.sent_bytes == 3 * 24
    assert used.total_bytes == 4 * 3 * 24
    assert used.rounds == 3
