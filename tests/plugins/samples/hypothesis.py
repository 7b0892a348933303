import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.ranks(2)
@given(numbers=st.lists(st.integers()))
def test_passes(numbers):
    values = [None, None]
    dist.all_gather_object(values, numbers)
    assert values == [numbers, numbers]


@pytest.mark.ranks(2)
@given(size=st.integers(0, 1000))
def test_fails(size):
    total = torch.tensor(size)
    dist.all_reduce(total)
    assert total < 20
