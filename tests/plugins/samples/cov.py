import halves
import pytest


@pytest.mark.ranks(2)
def test_average(rank):
    assert halves.average(rank) == 0.5
