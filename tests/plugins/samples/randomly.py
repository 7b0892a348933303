import random

import numpy as np
import pytest
import torch
import torch.distributed as dist


def numbers():
    return [random.random(), np.random.rand()]


@pytest.mark.ranks(2)
def test_passes(pytestconfig):
    values = [None, None]
    drawn = numbers()
    dist.all_gather_object(values, [*drawn, torch.rand(1).item()])
    assert values[0] == values[1]
    assert drawn == numbers_of_this_test(pytestconfig)


def numbers_of_this_test(config):
    """Return what the plugin lets a test draw in pytest's own process."""
    import pytest_randomly

    name = f"{__file__.rpartition('/')[2]}::test_passes"
    pytest_randomly._reseed(config, pytest_randomly._crc32(name))
    return numbers()
