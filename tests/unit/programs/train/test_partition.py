from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data.distributed import DistributedSampler

from distdemo.train.limits import shares
from distdemo.train.partition import PARTITIONS, batches
from distdemo.train.records import PARTITIONS as NAMES
from distdemo.train.records import TrainSpec


def orders(name, samples, size, epoch, seed=1):
    partition = PARTITIONS[name](samples, size, seed)
    return [partition.order(rank, epoch).tolist() for rank in range(size)]


def test_every_partition_that_can_be_asked_for_is_there():
    assert set(PARTITIONS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 200), st.integers(1, 9), st.integers(0, 5), st.integers(0, 2**62))
def test_ranks_see_equally_many_samples_and_none_in_common(name, samples, size, epoch, seed):
    found = orders(name, samples, size, epoch, seed)
    assert {len(order) for order in found} == {samples // size}
    seen = [sample for order in found for sample in order]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(range(samples))


@pytest.mark.parametrize("name", NAMES)
def test_the_order_is_that_of_the_seed_and_another_in_each_epoch(name):
    assert orders(name, 60, 3, 0) == orders(name, 60, 3, 0)
    assert orders(name, 60, 3, 0) != orders(name, 60, 3, 0, seed=2)
    assert orders(name, 60, 3, 0) != orders(name, 60, 3, 1)


def test_a_shuffle_leaves_each_rank_its_part_and_the_sampler_deals_anew():
    for name, same in (("shuffle", True), ("sampler", False)):
        first, second = (orders(name, 60, 3, epoch) for epoch in (0, 1))
        assert (list(map(set, first)) == list(map(set, second))) is same


def test_the_sampler_is_torch_s():
    sampler = DistributedSampler(range(50), 4, 2, seed=3, drop_last=True)  # type: ignore[arg-type,var-annotated]
    sampler.set_epoch(6)
    assert orders("sampler", 50, 4, 6, seed=3)[2] == list(sampler)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_sees_in_a_step_what_all_ranks_see(name):
    cut = shares(TrainSpec(batch_size=8), 50, 3)
    partition = PARTITIONS[name](50, 3, 1)
    everyone = list(batches(partition, range(3), 2, cut))
    each = [list(batches(partition, [rank], 2, cut)) for rank in range(3)]
    assert len(everyone) == cut.steps
    for step, batch in enumerate(everyone):
        assert torch.equal(batch, torch.cat([mine[step] for mine in each]))
        assert len(batch) == cut.batch * 3
