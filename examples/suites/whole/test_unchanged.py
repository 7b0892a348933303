"""Tests on PyTorch's base classes, as they are without distdemo: pytest test_unchanged.py."""

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import DistributedTestBase, MultiProcessTestCase


class TestTwo(MultiProcessTestCase):
    @property
    def world_size(self):
        return 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_broadcast(self):
        where = f"file://{self.file_name}"
        dist.init_process_group("gloo", where, rank=self.rank, world_size=self.world_size)
        tensor = torch.full((3,), float(self.rank))
        dist.broadcast(tensor, src=1)
        self.assertEqual(tensor, torch.ones(3))


class TestFour(DistributedTestBase):
    def test_sum(self):
        self.create_pg("cpu")
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor, torch.full((1,), 4.0))
