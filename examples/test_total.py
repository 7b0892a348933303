"""Test a sum over several ranks without pytest: python -m unittest test_total.py."""

import unittest

import torch
import torch.distributed as dist

from distdemo.testing import run_ranks


def total(rank: int, each: float) -> float:
    tensor = torch.tensor([each * rank])
    dist.all_reduce(tensor)
    return float(tensor)


class TestTotal(unittest.TestCase):
    def test_total(self):
        self.assertEqual(run_ranks(total, 3, 2.0), [6.0] * 3)
