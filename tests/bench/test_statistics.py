"""Statistics of times: quantiles and distribution-free intervals."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.bench import sweep
from distdemo.encoding import decode, encode
from distdemo.measure.statistics import interval, median, u_critical

SECONDS = st.floats(1e-7, 1e3)


def test_the_interval_is_the_narrowest_that_the_sign_test_allows():
    assert all(interval([1.0] * count) is None for count in range(1, 6))
    for count in range(6, 31):
        ends = interval([float(number) for number in range(count)])
        assert ends is not None, count
        low = int(ends[0])
        assert low == count - 1 - int(ends[1]), count
        risk = 2 * sum(comb(count, k) for k in range(low + 1)) / 2**count
        more = 2 * sum(comb(count, k) for k in range(low + 2)) / 2**count
        assert risk <= 0.05 < more, count
    ends = interval([float(number) for number in range(10_000)])  # 2**n exceeds a float
    half = 1.96 * 10_000**0.5 / 2  # normal approximation of the binomial distribution
    assert ends == pytest.approx((5_000 - half, 5_000 + half), abs=2)


def test_critical_values_match_published_tables_and_the_smallest_error():
    # Tables give the largest significant U, two-sided: one less than the critical value.
    known = {(5, 5, 0.05): 2, (6, 6, 0.05): 5, (8, 8, 0.05): 13, (8, 10, 0.01): 11}
    assert {case: u_critical(*case) - 1 for case in known} == known
    # The product of half the error and the number of orders is 1, except for rounding.
    for m, n in combinations(range(2, 14), 2):
        least = 2 / comb(m + n, m)
        assert (u_critical(m, n, least), u_critical(m, n, 0.999 * least)) == (1, 0), (m, n)


@given(st.lists(st.lists(SECONDS, max_size=20), min_size=1, max_size=12).filter(any))
def test_a_row_uses_all_iterations_and_its_interval_contains_its_median(launches):
    row = sweep.make_row(launches, size_bytes=800, elements=200, busbw_factor=1.5)
    times = [time for launch in launches for time in launch]
    assert row.iterations == len(times)
    assert (row.min_s, row.median_s, row.max_s) == (min(times), median(times), max(times))
    assert row.median_s <= row.p99_s <= row.max_s
    assert row.busbw_bytes_per_s == pytest.approx(1.5 * 800 / row.median_s)
    assert (row.interval_s is None) == (sum(map(bool, launches)) < 6)
    if row.interval_s is not None:
        assert row.interval_s[0] <= row.median_s <= row.interval_s[1]
    assert row.steady == (row.spread_share is not None and row.spread_share <= 0.05)
    assert decode(type(row), encode(row)) == row
