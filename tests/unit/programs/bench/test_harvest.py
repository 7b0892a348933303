from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from benches import series, spec, world

from distdemo.bench.harvest import Harvest
from distdemo.bench.plan import Visit
from distdemo.bench.samples import Sample
from distdemo.bench.yardsticks import Overlap


def sample(visit, took, start=0.0, **settings):
    moments = array("d", [start + turn for turn in range(len(took))])
    return Sample(
        visit, moments.tobytes(), moments.tobytes(), array("d", took).tobytes(), **settings
    )


def timed_row(harvest):
    made = harvest.row((0, 0))
    assert made is not None
    return made


def visit(launch=1, point=0, iterations=2, **settings):
    return Visit(0, point, launch, iterations, 0, **settings)


def test_a_visit_counts_once_all_ranks_have_told_and_the_slowest_counts():
    harvest = Harvest(spec())
    assert not harvest.add(0, sample(visit(), [1.0, 5.0]), comparable=False)
    assert harvest.row((0, 0)) is None
    assert harvest.add(1, sample(visit(), [2.0, 3.0]), comparable=False)
    made = timed_row(harvest)
    assert made.times == ((2.0, 5.0),)
    assert (made.size, made.elements, made.factor) == (8, 2, 1.0)


def test_the_launch_that_verifies_gives_no_times_but_a_pace_and_what_was_wrong():
    harvest = Harvest(spec())
    harvest.add(0, sample(visit(0), [1.0, 1.0], checked=2, wrong=1), comparable=True)
    harvest.add(1, sample(visit(0), [1.0, 3.0], checked=2), comparable=True)
    assert harvest.row((0, 0)) is None
    assert harvest.pace((0, 0)) == pytest.approx(2.0)
    harvest.add(0, sample(visit(1), [1.0, 1.0]), comparable=True)
    harvest.add(1, sample(visit(1), [1.0, 1.0]), comparable=True)
    made = timed_row(harvest)
    assert (made.checked, made.wrong) == (4, 1)


def test_starts_and_lateness_are_known_only_where_clocks_can_be_compared():
    for comparable in (True, False):
        harvest = Harvest(spec(skew=True))
        harvest.add(0, sample(visit(), [1.0, 1.0]), comparable=comparable)
        harvest.add(1, sample(visit(), [1.0, 1.0], start=0.5), comparable=comparable)
        found = harvest.series(0, whole=True)
        assert list(harvest.starts.get("gloo", ())) == ([0.5, 0.5] if comparable else [])
        assert [each.late for each in found.skew] == ([0.0, 0.5] if comparable else [])
    assert Harvest(spec(skew=True)).series(0, whole=True).skew == ()


def test_a_barrier_that_lets_a_rank_go_too_early_is_wrong():
    harvest = Harvest(spec(series("barrier", sizes=(0,))))
    harvest.add(0, sample(visit(), [0.2, 0.2]), comparable=True)
    harvest.add(1, sample(visit(), [0.2, 0.2], start=0.1), comparable=True)
    assert timed_row(harvest).wrong == 0
    harvest.add(0, sample(visit(2), [0.2, 0.2]), comparable=True)
    harvest.add(1, sample(visit(2), [0.2, 0.2], start=0.5), comparable=True)
    made = timed_row(harvest)
    assert (made.checked, made.wrong) == (8, 2)


def test_of_what_is_hidden_the_slowest_rank_and_the_middle_launch_count():
    harvest = Harvest(spec(overlap=True))
    for launch, together in ((1, 2.0), (2, 1.5), (3, 1.0)):
        for rank in (0, 1):
            hidden = Overlap(1.0, 1.0, together - rank / 10)
            harvest.add(rank, sample(visit(launch), [1.0, 1.0], hidden=hidden), comparable=True)
    assert timed_row(harvest).overlap == Overlap(1.0, 1.0, 1.5)
    assert timed_row(harvest).overlap.hidden == pytest.approx(0.5)


def test_a_series_has_the_rows_that_were_finished():
    harvest = Harvest(spec())
    for rank in (0, 1):
        harvest.add(rank, sample(visit(point=1), [1.0, 1.0]), comparable=True)
    harvest.add(0, sample(visit(), [1.0, 1.0]), comparable=True)
    found = harvest.series(0)
    assert [row.size for row in found.rows] == [4096]
    assert (found.clock, found.formula) == ("perf_counter", "2(n−1)/n")


def test_the_starts_of_two_backends_are_kept_apart():
    over = series()
    harvest = Harvest(spec(over, replace(over, world=world(backend="mpi"))))
    for number, apart in ((0, 0.5), (1, 0.25)):
        seen = Visit(number, 0, 1, 2, 0)
        harvest.add(0, sample(seen, [1.0, 1.0]), comparable=True)
        harvest.add(1, sample(seen, [1.0, 1.0], start=apart), comparable=True)
    assert {name: list(each) for name, each in harvest.starts.items()} == {
        "gloo": [0.5, 0.5],
        "mpi": [0.25, 0.25],
    }
