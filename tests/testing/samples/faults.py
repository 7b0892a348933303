"""Tests that fail in all the ways in which ranks can fail."""

import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def broken_before(rank):
    if rank == 1:
        raise RuntimeError("no set-up")


@pytest.fixture
def broken_after(rank):
    yield
    if rank == 1:
        raise RuntimeError("no clean-up")


@pytest.mark.ranks(4)
def test_asserts_on_two(rank):
    numbers = [rank, 5]
    print(f"rank {rank} has {numbers}")
    dist.barrier()
    assert numbers == [0, 5] or rank < 2, "wrong data received"
    dist.barrier()


@pytest.mark.ranks(3)
def test_raises_on_one(rank):
    if rank == 2:
        raise ValueError("no data")
    dist.all_reduce(torch.ones(2))


@pytest.mark.ranks(3)
def test_leaves_the_others_alone(rank):
    if rank != 1:
        dist.all_reduce(torch.ones(2))


@pytest.mark.ranks(2, timeout=2, sanitize=False)
def test_hangs(rank):
    if rank == 0:
        dist.all_reduce(torch.ones(2))
    else:
        threading.Event().wait(600)


@pytest.mark.ranks(2)
def test_is_killed(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


@pytest.mark.ranks(2)
def test_set_up(broken_before):
    dist.barrier()


@pytest.mark.ranks(2)
def test_clean_up(broken_after):
    dist.barrier()


@pytest.mark.ranks(2)
@pytest.mark.xfail(strict=True)
def test_passes_unexpectedly():
    pass


@pytest.mark.ranks(2)
@pytest.mark.xfail(raises=ValueError)
def test_unexpected_error_on_one(rank):
    if rank == 1:
        raise TypeError("no number")
    dist.barrier()


@pytest.mark.ranks(2)
def test_subtests_fail_on_one(subtests, rank):
    for number in range(3):
        with subtests.test(number=number):
            assert rank == 0 or number != 1


@pytest.mark.ranks(2)
@given(size=st.integers(1, 1000))
def test_example_fails_on_one(rank, size):
    dist.all_reduce(torch.ones(size))
    assert rank == 0 or size < 10


@pytest.mark.ranks(2, backend="ucc")
def test_backend_that_is_not_here():
    pass


@pytest.mark.ranks(2, backend="glooo")
def test_backend_that_nobody_knows():
    pass


def test_rank_without_ranks(rank):
    pass


@pytest.mark.ranks(2)
def test_after_all_that(rank, world_size):
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    assert total.item() == 1
