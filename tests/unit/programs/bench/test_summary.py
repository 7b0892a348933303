from __future__ import annotations

import random
from math import comb

import pytest

from distdemo.bench.summary import interval, median, quantile, row


def test_a_quantile_lies_between_two_values_linearly():
    assert quantile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
    assert quantile([3.0], 0.99) == 3.0
    assert median([5.0, 1.0, 3.0, 4.0]) == 3.5


@pytest.mark.parametrize("count", [1, 2, 5])
def test_too_few_launches_have_no_interval(count):
    assert interval([1.0] * count) is None


@pytest.mark.parametrize("count", range(6, 31))
def test_the_interval_leaves_out_as_many_at_each_end_as_the_sign_test_allows(count):
    values = [float(each) for each in range(count)]
    found = interval(values)
    assert found is not None
    low, high = int(found[0]), int(found[1])
    assert low == count - 1 - high
    risk = 2 * sum(comb(count, each) for each in range(low + 1)) / 2**count
    more = 2 * sum(comb(count, each) for each in range(low + 2)) / 2**count
    assert risk <= 0.05 < more


def test_thousands_have_an_interval_too_though_their_cases_are_more_than_a_float_holds():
    count = 10_000
    found = interval([float(each) for each in range(count)])
    half = 1.96 * count**0.5 / 2  # of the binomial distribution, by the normal one
    assert found == pytest.approx((count / 2 - half, count / 2 + half), abs=2)


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    chance, held = random.Random(4), 0
    for _ in range(2000):
        found = interval([chance.lognormvariate(0.0, 0.5) for _ in range(8)])
        assert found is not None
        held += found[0] <= 1.0 <= found[1]
    assert held / 2000 > 0.95


def made(times, **settings):
    usual = {"size": 800, "elements": 200, "factor": 1.5, "precision": 0.05}
    return row(times, **(usual | settings))


def test_a_row_has_the_quantiles_of_all_iterations_of_all_launches():
    found = made([[4.0, 1.0], [2.0, 3.0], []], checked=7, wrong=1)
    assert found.iterations == 4
    assert len(found.times) == 2
    assert (found.fastest, found.median, found.slowest) == (1.0, 2.5, 4.0)
    assert found.algbw == pytest.approx(320.0)
    assert found.busbw == pytest.approx(480.0)
    assert (found.checked, found.wrong) == (7, 1)
    assert found.interval is None
    assert not found.steady


def test_a_row_is_steady_once_its_interval_is_narrow_enough():
    launches = [[1.0, 1.0 + each / 100] for each in range(6)]
    assert made(launches).steady
    assert not made(launches, precision=0.01).steady
    assert not made([*launches[1:], [2.0, 2.0]]).steady


def test_the_interval_holds_the_median_of_all_iterations_even_if_launches_are_unequal():
    found = made([[9.0] * 50, *([[1.0]] * 6), [2.0], [2.0]])
    assert found.interval is not None
    assert found.interval[0] <= found.median <= found.interval[1]
