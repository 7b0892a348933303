"""α and β come back out of the times that were made with them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distdemo.bench.fit import fit
from distdemo.bench.fitting import FittedSeries
from distdemo.bench.models import ALGORITHMS, Algorithm, find
from distdemo.bench.recorded import RecordedRow, RecordedSeries, Recording, SeriesKey
from distdemo.bench.squares import bend, chance_of_so_few_runs, residuals, solve
from distdemo.errors import UsageError

SIZES = tuple(8 * 4**step for step in range(12))
PAIRS = [(op, way) for op, ways in ALGORITHMS.items() for way in ways]
ALPHA, BETA = 30e-6, 0.5e-9


def run(
    op: str,
    way: Algorithm,
    n: int,
    *,
    alpha: float = ALPHA,
    beta: float = BETA,
    noise: float = 0.0,
    launches: int = 8,
    seconds=None,
) -> Recording:
    """A recording of n ranks that do the op in this way."""
    rng = random.Random(f"{op} {way.name} {n}")
    rows = []
    for size in SIZES:
        time = way.seconds(n, size, alpha, beta) if seconds is None else seconds(size)
        times = tuple(
            tuple(time * math.exp(rng.gauss(0, noise)) for _ in range(25 if noise else 1))
            for _ in range(launches)
        )
        rows.append(RecordedRow(size, times))
    key = SeriesKey("gloo", op.replace("_", "-"), "tensor", False, False, n, "float32")
    return Recording(f"{n}.json", (RecordedSeries(key, op, "cpu", n, 1, tuple(rows)),))


def fitted(*recordings: Recording, wanted: str | None = None) -> FittedSeries:
    (series,), _ = fit(recordings, wanted)
    return series


def of(series: FittedSeries, name: str):
    return next(each for each in series.fits if each.algorithm == name)


@pytest.mark.parametrize(("op", "way"), PAIRS, ids=lambda each: getattr(each, "name", each))
def test_they_are_recovered_within_a_percent(op, way):
    exact = of(fitted(*(run(op, way, n, launches=1) for n in (2, 3, 4))), way.name)
    assert (exact.link.alpha, exact.link.beta) == pytest.approx((ALPHA, BETA), rel=1e-9)
    series = fitted(*(run(op, way, n, noise=0.03, launches=6) for n in (2, 4)))
    found = of(series, way.name)
    assert (found.link.alpha, found.link.beta) == pytest.approx((ALPHA, BETA), rel=0.01)
    assert found.misfit == ""
    assert found.median_error < 0.02
    low, high = found.alpha_interval or (0, 0)
    assert low * 0.98 <= ALPHA <= high * 1.02
    assert high / low < 1.05
    best = min(sum(error**2 for error in each.residuals) for each in series.fits)
    assert sum(error**2 for error in found.residuals) <= best * 1.1 + 1e-12, "none does better"


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-7, 1e-3), st.floats(1e-11, 1e-8))
def test_any_alpha_and_beta_are_recovered(alpha, beta):
    equations = [(2.0, size, 2 * alpha + size * beta) for size in SIZES]
    assume(SIZES[-1] * beta > 0.1 * alpha)
    assume(SIZES[0] * beta < alpha)
    link = solve(equations)
    assert (link.alpha, link.beta) == pytest.approx((alpha, beta), rel=1e-6)


def test_neither_is_ever_negative():
    flat = solve([(1.0, size, 1e-3 / (1 + size)) for size in SIZES])
    assert min(flat.alpha, flat.beta) >= 0
    steep = solve([(1.0, size, size * 1e-9) for size in SIZES])
    assert steep.alpha == pytest.approx(0, abs=1e-15)
    assert steep.beta == pytest.approx(1e-9)
    falling = solve([(1.0, 1.0, 3.0), (1.0, 2.0, 2.0), (1.0, 3.0, 1.0)])
    assert falling.beta == 0
    assert solve([]) == type(flat)(0.0, 0.0)


def test_on_one_number_of_ranks_algorithms_are_not_told_apart():
    series = fitted(run("all_reduce", find("all_reduce", "tree"), 2))
    assert not series.told_apart
    assert series.chosen == "ring"
    assert "another number of ranks" in series.why
    errors = [each.median_error for each in series.fits]
    assert max(errors) < 1e-9
    assert fitted(run("p2p", find("p2p", "message"), 2)).why == "The op has no other."


def test_on_several_the_right_one_is_found_and_its_rivals_named():
    way = find("all_reduce", "ring")
    series = fitted(*(run("all_reduce", way, n, noise=0.03) for n in (2, 4)))
    assert (series.told_apart, series.chosen, series.worlds) == (True, "ring", (2, 4))
    assert series.why == "It fits best."
    doubled = fitted(*(run("all_reduce", find("all_reduce", "doubling"), n) for n in (2, 4)))
    assert {"tree", "doubling"} <= set(doubled.why.replace(",", "").split()) | {doubled.chosen}, (
        "on powers of two the one is twice the other"
    )
    assert fitted(run("all_reduce", way, 2), wanted="flat").chosen == "flat"


def test_a_protocol_that_changes_does_not_fit_and_the_bend_is_named():
    def seconds(size):
        return 5e-6 + size * 1e-9 if size < 1 << 15 else 400e-6 + size * 0.05e-9

    series = fitted(run("p2p", find("p2p", "message"), 2, seconds=seconds))
    (found,) = series.fits
    assert found.misfit
    assert found.bend is not None
    assert found.bend.size == 1 << 15
    assert found.bend.small.alpha == pytest.approx(5e-6)
    assert found.bend.large.beta == pytest.approx(0.05e-9)
    assert found.bend.error < 1e-9


def test_a_wrong_model_does_not_fit_but_noise_does():
    def square(size):
        return 1e-6 * math.sqrt(size)

    assert fitted(run("p2p", find("p2p", "message"), 2, seconds=square)).best.misfit
    noisy = [run(op, way, n, noise=0.3) for op, way in PAIRS[:1] for n in (2, 4)]
    assert not fitted(*noisy).best.misfit


def test_runs_of_signs_are_counted():
    assert chance_of_so_few_runs([1, -1, 1, -1]) == 1.0
    assert chance_of_so_few_runs([1, 1, -1, -1]) == pytest.approx(2 / 6)
    assert chance_of_so_few_runs([1] * 6 + [-1] * 6) == pytest.approx(2 / 924)
    assert chance_of_so_few_runs([1, 1, 1]) == 1.0
    assert chance_of_so_few_runs([]) == 1.0


def test_few_points_have_no_bend():
    equations = [(1.0, float(size), 1.0) for size in range(1, 6)]
    assert bend(equations, range(1, 6)) is None
    assert residuals([(1.0, 0.0, 2.0)], type(solve([]))(1.0, 0.0)) == (-0.5,)


def test_one_launch_has_no_interval_and_files_are_resampled_apart():
    way = find("all_reduce", "ring")
    lone = fitted(run("all_reduce", way, 2, launches=1)).best
    assert (lone.alpha_interval, lone.beta_interval) == (None, None)
    mixed = fitted(run("all_reduce", way, 2, launches=6), run("all_reduce", way, 4, launches=9))
    assert mixed.best.alpha_interval is not None
    assert fitted(run("all_reduce", way, 2, noise=0.1)) == fitted(
        run("all_reduce", way, 2, noise=0.1)
    ), "the same file gives the same intervals"


def test_what_can_not_be_fitted_is_refused_or_noted():
    way = find("all_reduce", "ring")
    good, barrier = run("all_reduce", way, 2), run("all_reduce", way, 2)
    (series,) = barrier.series
    meeting = replace(series, op="barrier", key=replace(series.key, command="barrier"))
    _, notes = fit([good, replace(barrier, series=(meeting,))])
    assert notes == ("gloo barrier is left out: no formula is known for barrier.",)
    for bad, words in (
        (meeting, "no formula"),
        (replace(series, rows=series.rows[:2]), "three sizes"),
        (replace(series, key=replace(series.key, n=1)), "one rank sends nothing"),
    ):
        with pytest.raises(UsageError, match="nothing that can be fitted") as caught:
            fit([replace(good, series=(bad,))])
        assert words in caught.value.why
