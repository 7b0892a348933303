"""The ratio of two samples and its interval, against tables and by counting out."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo.bench.shifts import (
    blocked,
    counts,
    critical,
    critical_of,
    least_error,
    least_error_of,
    shift,
)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 3), (4, 4), (5, 3), (1, 6)])
def test_u_is_counted_as_all_orders_say(m, n):
    found = [0] * (m * n + 1)
    for places in combinations(range(m + n), m):
        found[sum(places) - m * (m - 1) // 2] += 1
    assert counts(m, n) == tuple(found)


@pytest.mark.parametrize(
    ("m", "n", "error", "table"),
    [(5, 5, 0.05, 2), (6, 6, 0.05, 5), (8, 8, 0.05, 13), (10, 10, 0.05, 23), (8, 10, 0.01, 11)],
)
def test_critical_values_are_those_of_the_published_tables(m, n, error, table):
    # Tables give the largest U that is significant, two-sided: one less than the place to cut at.
    assert critical(m, n, error) == table + 1


@pytest.mark.parametrize("sizes", [((2, 2), (1, 3)), ((3, 2), (2, 2)), ((1, 1), (1, 1), (2, 1))])
def test_of_blocks_the_sum_of_u_is_counted_as_all_orders_within_them_say(sizes):
    sums = [0]
    for m, n in sizes:
        orders = [sum(p) - m * (m - 1) // 2 for p in combinations(range(m + n), m)]
        sums = [one + other for one in sums for other in orders]
    for error in (0.05, 0.2, 0.5, 1.0):
        below = range(1, max(sums) + 2)
        fitting = [
            c for c in below if sum(s < c for s in sums) <= error / 2 * len(sums) * (1 + 1e-9)
        ]
        assert critical_of(sizes, error) == max(fitting, default=0)
    assert least_error_of(sizes) == pytest.approx(2 / len(sums))


def test_only_pairs_of_the_same_block_count():
    quick, slow = ([1.0, 1.1], [2.0, 2.2]), ([10.0, 11.0], [20.0, 22.0])
    assert blocked([quick, slow], 0.2).ratio == pytest.approx(2.0)
    assert blocked([quick, slow], 0.2).interval == pytest.approx((20 / 11, 2.2))
    assert blocked([quick], 0.2) == shift(*quick, 0.2)


def test_an_interval_of_blocks_misses_as_seldom_as_it_says():
    rng = random.Random(5)
    missed = 0
    for _ in range(400):
        blocks = [
            (
                [level * rng.lognormvariate(0, 0.1) for _ in range(m)],
                [level * rng.lognormvariate(0, 0.1) for _ in range(n)],
            )
            for level, m, n in ((1.0, 5, 2), (4.0, 3, 6))
        ]
        low, high = blocked(blocks, 0.10).interval or (0, 0)
        missed += not low <= 1 <= high
    assert 0.04 < missed / 400 < 0.14


def test_too_small_samples_have_no_interval():
    assert shift([1.0], [2.0], 0.05).interval is None
    assert shift([1.0, 1.1], [2.0, 2.1], 0.05).interval is None
    assert least_error(6, 6) == pytest.approx(2 / 924)
    assert critical(6, 6, 2 / 924) == 1
    assert critical(6, 6, 2 / 925) == 0


def test_the_least_error_has_an_interval_whatever_the_samples_are():
    # The product of half the error and the number of orders is 1, but for its rounding.
    for m in range(2, 31):
        for n in range(2, 31):
            assert critical(m, n, least_error(m, n)) == 1, (m, n)
            assert critical(m, n, 0.999 * least_error(m, n)) == 0, (m, n)


def test_the_ratio_is_the_median_of_all_pairs():
    found = shift([1.0, 2.0, 4.0], [2.0, 4.0, 8.0], 0.2)
    assert found.ratio == 2.0
    assert found.interval == (1.0, 4.0)


def test_many_launches_take_the_normal_approximation_which_agrees():
    exact = critical(50, 50, 0.05)
    spread = math.sqrt(50 * 50 * 101 / 12)
    assert exact == pytest.approx(1250 - 1.96 * spread, abs=2)
    assert critical(51, 51, 0.05) > exact


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=4, max_size=9),
    st.lists(st.floats(0.1, 10), min_size=4, max_size=9),
    st.floats(0.1, 10),
)
def test_it_goes_with_the_scale_and_turns_round(old, new, factor):
    found = shift(old, new, 0.1)
    assert found.interval is not None
    low, high = found.interval
    assert low <= found.ratio <= high
    assert shift(old, [factor * each for each in new], 0.1).ratio == pytest.approx(
        factor * found.ratio
    )
    back = shift(new, old, 0.1).interval
    assert back == pytest.approx((1 / high, 1 / low))


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = random.Random(1)
    held = 0
    for _ in range(600):
        old, new = ([math.exp(rng.gauss(at, 0.3)) for _ in range(7)] for at in (0, 0.5))
        low, high = shift(old, new, 0.05).interval or (0, 0)
        held += low <= math.exp(0.5) <= high
    assert 0.93 <= held / 600 <= 0.995
