import pytest


@pytest.mark.ranks(2)
def test_passes(rank):
    print(f"rank {rank} passes")


@pytest.mark.ranks(2)
def test_fails(rank):
    print(f"rank {rank} fails")
    assert rank == 0
