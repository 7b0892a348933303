"""Parity: on several ranks every gradient and every parameter is what it is on one rank."""

import pytest
from parity import train

import distdemo


@pytest.mark.parametrize("world_size", [2, 4], ids="ranks{}".format)
def test_parity(world_size):
    distdemo.check_parity(train, world_size=world_size)
