"""Tests of a suite with its own base class: pytest test_mean.py."""

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import skip_if_lt_x_gpu

from distdemo.testing.suite import RanksTestCase


@pytest.mark.ranks(4)
class DistributedTestCase(RanksTestCase):
    """Was a unittest.TestCase that started four processes in setUp."""

    def setUp(self):
        super().setUp()
        self.mine = torch.full((3,), float(self.rank))

    def mean(self):
        total = self.mine.clone()
        dist.all_reduce(total)
        return total / self.world_size


class TestMean(DistributedTestCase):
    def test_mean(self):
        torch.testing.assert_close(self.mean(), torch.full((3,), 1.5))

    @skip_if_lt_x_gpu(2)
    def test_mean_on_gpus(self):
        self.mine = self.mine.cuda(self.rank)
        torch.testing.assert_close(self.mean(), torch.full_like(self.mine, 1.5))


@pytest.mark.ranks(2)
class TestMeanOfTwo(DistributedTestCase):
    def test_mean(self):
        torch.testing.assert_close(self.mean(), torch.full((3,), 0.5))
