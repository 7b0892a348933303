"""Run every test on PyTorch's base classes on ranks, without a change of the test files: pytest."""

import os

import pytest
from torch.testing._internal import common_distributed

from distdemo.testing.suite import RanksTestCase

os.environ["WORLD_SIZE"] = "4"  # for classes without a world_size of their own


class OnRanks(RanksTestCase, common_distributed.MultiProcessTestCase):
    """Takes the place of MultiProcessTestCase."""


# A conftest is imported before the test files, which then import these.
common_distributed.MultiProcessTestCase = OnRanks
common_distributed.DistributedTestBase.__bases__ = (OnRanks,)


def pytest_collection_modifyitems(items):
    """Mark the tests with the number of ranks of their class."""
    for item in items:
        suite = getattr(item, "cls", None)
        if suite and issubclass(suite, OnRanks):
            item.add_marker(pytest.mark.ranks(suite(item.name).world_size, timeout=120))
