"""Tests that pass, and of which the sanitizer warns."""

import os

import pytest
import torch
import torch.distributed as dist

from distdemo.testing.suite import RanksTestCase


def train(rank):
    """Average the gradients of parameters that start with other values on every rank."""
    torch.manual_seed(rank)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(4, 2)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()


@pytest.mark.ranks(2, timeout=120)
def test_starts_with_other_values(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120)
@pytest.mark.filterwarnings("ignore::distdemo.testing.RanksWarning")
def test_is_known(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120)
@pytest.mark.filterwarnings("error::distdemo.testing.RanksWarning")
def test_is_an_error(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120, strict=True)
def test_is_strict(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120, check_replicas=1, excluded=["bias"])
def test_asks_for_replicas(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120, strict=True)
@pytest.mark.xfail
def test_is_expected(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120, strict=True, findings="replicas=off")
def test_is_off(rank):
    train(rank)


@pytest.mark.ranks(2, timeout=120)
class TestSuite(RanksTestCase):
    def test_method(self):
        train(self.rank)


@pytest.mark.ranks(2, timeout=120)
def test_renumbers(rank, tmp_path):
    dist.destroy_process_group()
    os.environ.pop("RANK")
    where = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=where, rank=1 - rank, world_size=2)
    dist.barrier()
