"""Statistics of times (quantiles, distribution-free interval, late ranks) and the plan."""

from __future__ import annotations

import math
from dataclasses import replace
from math import comb

import benches as wanted
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo import ops
from distdemo.bench import rank
from distdemo.bench import sweep as plan
from distdemo.bench.command import sizes_of, sweep_sizes
from distdemo.bench.records import LAUNCHES_OF_FIXED
from distdemo.bench.sweep import make_row
from distdemo.encoding import decode, encode
from distdemo.measure.statistics import interval, median

SECONDS = st.floats(1e-7, 1e3)


def test_the_interval_is_the_narrowest_that_the_sign_test_allows():
    assert all(interval([1.0] * count) is None for count in range(1, 6))
    for count in range(6, 31):
        found = interval([float(each) for each in range(count)])
        assert found is not None, count
        low = int(found[0])
        assert low == count - 1 - int(found[1]), count
        risk = 2 * sum(comb(count, each) for each in range(low + 1)) / 2**count
        more = 2 * sum(comb(count, each) for each in range(low + 2)) / 2**count
        assert risk <= 0.05 < more, count
    found = interval([float(each) for each in range(10_000)])  # 2**n exceeds a float
    half = 1.96 * 10_000**0.5 / 2  # normal approximation of the binomial distribution
    assert found == pytest.approx((5_000 - half, 5_000 + half), abs=2)


@given(st.lists(st.lists(SECONDS, max_size=20), min_size=1, max_size=12).filter(any))
def test_a_row_uses_all_iterations_and_its_interval_contains_its_median(launches):
    row = make_row(launches, 0.05, size_bytes=800, elements=200, busbw_factor=1.5)
    every = [time for launch in launches for time in launch]
    assert row.iterations == len(every)
    assert (row.min_s, row.median_s, row.max_s) == (min(every), median(every), max(every))
    assert row.min_s <= row.p10_s <= row.p90_s <= row.p99_s <= row.max_s
    assert row.busbw_bytes_per_s == pytest.approx(1.5 * 800 / row.median_s)
    assert (row.interval_s is None) == (sum(map(bool, launches)) < 6)
    if row.interval_s is not None:
        assert row.interval_s[0] <= row.median_s <= row.interval_s[1]
    assert row.steady == (row.spread_share is not None and row.spread_share <= 0.05)
    assert decode(type(row), encode(row)) == row


# --------------------------------------------------------------------------------------- the sizes


@given(
    st.sampled_from(list(ops.REGISTRY)),
    st.integers(2, 9),
    st.lists(st.integers(1, 1 << 30), min_size=1, max_size=9),
)
def test_sizes_are_ascending_multiples_of_the_smallest_call(name, ranks, sizes):
    spec = wanted.series(name, ranks)
    found = sizes_of(ops.REGISTRY[name], spec.smallest, sizes)
    assert sorted(set(found)) == list(found)
    if ops.REGISTRY[name].is_barrier:
        assert found == (0,)
        return
    for size in found:
        (op_spec,) = spec.at(size)
        assert ops.REGISTRY[name].traffic(op_spec).payload_bytes == size
        part = ops.REGISTRY[name].traffic(spec.smallest).payload_bytes
        assert any(size == part or 0 <= each - size < part for each in sizes)


def test_sizes_by_a_factor():
    assert sweep_sizes(8, 600, 4.0) == [8, 32, 128, 512]
    assert len(sweep_sizes(8, 1 << 30, 2)) == 28
    assert sweep_sizes(10, 1000, 10**0.5)[::2] == [10, 100, 1000]


# ------------------------------------------------------------------------------------------ a plan


def both():
    large = wanted.series("broadcast", sizes_bytes=(8, 1 << 20, 1 << 26))
    return wanted.asked(wanted.series(), large)


def test_the_first_launch_verifies_every_size_and_later_ones_alternate_their_order():
    found = plan.first_launch(both(), "gloo")
    assert [(v.series, v.point) for v in found] == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    assert all(v.launch == 0 for v in found)
    assert found[0].warmup > found[3].warmup > found[4].warmup > 0
    within = [v.within_s for v in plan.first_launch(both(), "gloo", 5.0)]
    assert within == [math.inf, math.inf, 5.0, 5.0, 5.0], "the smallest sizes are always measured"
    assert {v.warmup for v in plan.first_launch(replace(both(), warmup=0), "gloo")} == {0}
    up, down = (plan.timed_launch(both(), launch, {(0, 0): 5, (1, 0): 3}) for launch in (1, 2))
    assert [(v.series, v.iterations) for v in up] == [(0, 5), (1, 3)]
    assert [(v.series, v.launch) for v in down] == [(1, 2), (0, 2)]


def test_blocks_replace_launches_in_one_world_and_a_plan_can_be_encoded():
    found = plan.single_world(wanted.asked(iters=10), "gloo")
    timing = [v for v in found if v.launch]
    assert {v.launch for v in timing} == set(range(1, LAUNCHES_OF_FIXED + 1))
    assert [sum(v.iterations for v in timing if v.point == point) for point in (0, 1)] == [10, 10]
    assert [v.point for v in timing[:4]] == [0, 1, 1, 0]
    assert decode(rank.Measurements, encode(found)) == found
    open_ended = plan.single_world(wanted.asked(iters=None), "gloo", 24.0)
    limits = {(v.iterations, v.seconds, v.within_s) for v in open_ended if v.launch}
    assert limits == {(0, 0.5, 24.0)}
