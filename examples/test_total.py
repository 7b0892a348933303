"""Test a sum over several ranks without pytest: python -m unittest test_total.py."""

import unittest

import torch
import torch.distributed as dist

from distdemo.testing import ranks, run_ranks


def total(rank: int, each: float) -> float:
    tensor = torch.tensor([each * rank])
    dist.all_reduce(tensor)
    return float(tensor)


class TestTotal(unittest.TestCase):
    def test_total(self):
        self.assertEqual(run_ranks(total, 3, 2.0), [6.0] * 3)

    def test_several(self):
        with ranks(2, timeout=20) as run:
            self.assertEqual(run(total, 1.0), [1.0] * 2)
            self.assertEqual(run(total, 3.0), [3.0] * 2)
