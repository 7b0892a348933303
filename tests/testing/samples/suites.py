"""Tests on PyTorch's base class that fail, or exit as PyTorch's decorators do."""

import os
import sys
import unittest

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import TEST_SKIPS, MultiProcessTestCase

from distdemo.testing.suite import RanksTestCase


@pytest.mark.ranks(2)
class OnTwoRanks(RanksTestCase, MultiProcessTestCase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def start(self):
        where = f"file://{self.file_name}"
        dist.init_process_group("gloo", where, rank=self.rank, world_size=self.world_size)


class TestEnds(OnTwoRanks):
    def test_wrong(self):
        self.start()
        tensor = torch.full((2,), float(self.rank))
        dist.all_reduce(tensor)
        self.assertEqual(tensor, torch.full((2,), 1.0 + self.rank))  # wrong

    def test_leaves(self):
        self.start()
        if self.rank == 1:
            dist.all_reduce(torch.ones(2))  # alone

    def test_exits(self):
        sys.exit(5)

    def test_exits_well(self):
        self.start()
        dist.barrier()
        sys.exit(0)

    def test_skips(self):
        raise unittest.SkipTest("not on this machine")

    def test_has_its_own_process(self):
        self.assertNotIn("RANK", os.environ)  # as in a process of MultiProcessTestCase
        self.assertFalse(dist.is_initialized())


class TestSkips(OnTwoRanks):
    pass


for name in TEST_SKIPS:
    setattr(TestSkips, f"test_{name}", lambda self, skip=TEST_SKIPS[name]: sys.exit(skip.exit_code))


class TestOtherSize(OnTwoRanks):
    @property
    def world_size(self):
        return 3

    def test_size(self):
        pass


@pytest.mark.ranks(3)
class TestOwnMark(TestOtherSize):
    pass
