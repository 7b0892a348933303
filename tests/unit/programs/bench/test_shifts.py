"""The ratio of two samples and its interval, against tables and by counting out."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo.programs.bench.shifts import counts, critical, least_error, shift


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
