"""Tests of a suite on PyTorch's base class: pytest test_broadcast.py."""

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase, requires_gloo

from distdemo.testing.suite import RanksTestCase


@pytest.mark.ranks(2)
class TestBroadcast(RanksTestCase, MultiProcessTestCase):
    @property
    def world_size(self):
        return 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def start(self):
        where = f"file://{self.file_name}"
        dist.init_process_group("gloo", where, rank=self.rank, world_size=self.world_size)

    @requires_gloo()
    def test_broadcast(self):
        self.start()
        tensor = torch.full((3,), float(self.rank))
        dist.broadcast(tensor, src=1)
        self.assertEqual(tensor, torch.ones(3))
