import unittest

import pytest
import torch.distributed as dist


@pytest.mark.ranks(2)
def test_passes(subtests):
    for number in range(3):
        with subtests.test(number=number):
            dist.barrier()


class TestCase(unittest.TestCase):
    @pytest.mark.ranks(2)
    def test_fails(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, dist.get_rank())
