"""Tests that pass, are skipped or fail as expected, in all the ways that pytest supports."""

import os
import random
import threading
import unittest
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

# As a library may do that is imported here: use torch's threads, and start another one.
PRODUCT = torch.ones(300, 300) @ torch.ones(300, 300)
threading.Thread(target=threading.Event().wait, daemon=True).start()


@pytest.mark.ranks(2)
def test_computes_as_the_file_did():
    assert torch.equal(torch.ones(300, 300) @ torch.ones(300, 300), PRODUCT)


@pytest.mark.ranks(4)
def test_average(rank, world_size):
    total = torch.full((3,), float(rank))
    dist.all_reduce(total)
    assert (total / world_size).tolist() == [1.5] * 3


@pytest.mark.ranks([1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_sizes_and_parameters(rank, world_size, dtype):
    parts = [torch.zeros(1, dtype=dtype) for _ in range(world_size)]
    dist.all_gather(parts, torch.tensor([rank], dtype=dtype))
    assert torch.cat(parts).tolist() == list(range(world_size))


@pytest.mark.ranks(3)
def test_folder_that_all_share(rank, world_size, tmp_path, tmp_path_factory):
    (tmp_path_factory.mktemp("own") / str(rank)).touch()
    (tmp_path / str(rank)).touch()
    dist.barrier()
    assert len(list(tmp_path.iterdir())) == world_size


@pytest.mark.ranks(2)
def test_output(rank, capfd, monkeypatch):
    monkeypatch.setenv("WHO", str(rank))
    print(f"I am {rank}")
    assert capfd.readouterr().out == f"I am {rank}\n"


@pytest.fixture(scope="session")
def twice(world_size):
    return 2 * world_size


@pytest.fixture(scope="module")
def group(rank):
    assert dist.is_initialized()
    made = dist.new_group([0, 1])
    yield made
    dist.destroy_process_group(made)


@pytest.fixture
def ones():
    return torch.ones(2)


class TestClass:
    @pytest.mark.ranks(2)
    def test_fixtures(self, twice, group, ones):
        dist.all_reduce(ones, group=group)
        assert ones.tolist() == [2, 2]
        assert twice == 4

    @pytest.mark.ranks(2)
    def test_the_same_again(self, group, ones):
        dist.all_reduce(ones, group=group)
        assert ones.tolist() == [2, 2]


class TestUnittest(unittest.TestCase):
    @pytest.mark.ranks(2)
    def test_sum(self):
        total = torch.ones(1)
        dist.all_reduce(total)
        self.assertEqual(total.item(), 2)


@pytest.mark.ranks(2)
def test_skipped_by_all():
    pytest.skip("not needed")


@pytest.mark.ranks(2)
def test_skipped_by_one(rank):
    if rank == 1:
        pytest.skip("only rank 0 checks")
    assert rank == 0


@pytest.mark.ranks(2)
@pytest.mark.skipif(True, reason="not here")
def test_skipped_by_its_mark():
    raise AssertionError


@pytest.mark.ranks(2)
@pytest.mark.xfail
def test_expected_on_all():
    raise AssertionError


@pytest.mark.ranks(2)
def test_expected_on_one(rank):
    if rank == 0:
        pytest.xfail("a known bug")
    dist.barrier()


@pytest.mark.ranks(2)
@pytest.mark.xfail
def test_expected_to_hang(rank):
    if rank == 0:
        dist.barrier()


@pytest.mark.ranks(2)
@pytest.mark.xfail(strict=True)
def test_strictly_expected_on_one(rank):
    assert rank == 0


@pytest.mark.ranks(2)
def test_the_same_random_numbers():
    same_on_all([random.random(), np.random.rand(), torch.rand(1).item()])


@pytest.mark.ranks(2)
@given(number=st.integers(), numbers=st.lists(st.floats(allow_nan=False)))
def test_the_same_examples(number, numbers):
    same_on_all([number, numbers])


def same_on_all(value):
    values = [None, None]
    dist.all_gather_object(values, value)
    assert values == [value, value]


@pytest.mark.ranks(2)
def test_warns():
    warnings.warn("be careful", stacklevel=1)


ENDS = {None: 0, SystemExit(0): 0, SystemExit(3): 3, ValueError("of a child"): 1}


def fork_child(end):
    """Fork a child that ends the test with an exception, and return its exit code."""
    child = os.fork()
    if child == 0:
        if end is not None:
            raise end
        return None
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.ranks(2)
@pytest.mark.parametrize("end", ENDS)
def test_forked_child(end, tmp_path):
    status = fork_child(end)
    if status is None:
        return
    assert status == ENDS[end]
    assert tmp_path.parent.exists()
    dist.barrier()


@pytest.mark.ranks(2)
def test_numbers_its_ranks_itself(rank, tmp_path_factory):
    where = f"file://{tmp_path_factory.getbasetemp().parent}/own-{os.getppid()}"
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=where, rank=1 - rank, world_size=2)
    dist.barrier()


@pytest.mark.ranks(2, backend="mpi")
def test_over_mpi(world_size):
    assert dist.get_backend() == "mpi"


def test_without_ranks(tmp_path):
    assert not dist.is_initialized()
