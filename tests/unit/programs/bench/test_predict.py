"""Predictions go on in the model's own line, and name where algorithms change places."""

from __future__ import annotations

import math
import time

import pytest
from recordings import SIZES, document, one_row, one_series, written

from distdemo.bench.fitting import Link
from distdemo.bench.models import ALGORITHMS, find
from distdemo.bench.predict import crossovers
from distdemo.bench.reading import read
from distdemo.bench.study import study
from distdemo.errors import UsageError

LINK = Link(30e-6, 0.5e-9)


@pytest.mark.parametrize("n", [2, 3, 8, 100, 1000, 1_000_000])
@pytest.mark.parametrize("op", ALGORITHMS)
def test_the_fastest_changes_where_it_is_said_to(op, n):
    ways = ALGORITHMS[op]
    found = list(crossovers(ways, n, LINK))
    edges = [each.size for each in found]
    assert edges == sorted(edges)
    spans = zip([1e-3, *edges], [*edges, 1e20], strict=True)
    names = [found[0].below, *(each.above for each in found)] if found else [None]
    for (low, high), name in zip(spans, names, strict=True):
        for size in (low * 1.001, math.sqrt(low * high), high * 0.999):
            times = {way.name: way.seconds(n, size, LINK.alpha, LINK.beta) for way in ways}
            least = min(times.values())
            if name is None:  # one is best at any size
                best = min(ways, key=lambda way: (way.rounds(n), way.share(n))).name
                assert times[best] == pytest.approx(least)
            else:
                assert times[name] == pytest.approx(least, rel=1e-9)


def test_the_crossover_of_two_lines_is_where_both_take_equally_long():
    ways = [find("broadcast", name) for name in ("tree", "scatter-doubling")]
    (found,) = crossovers(ways, 16, LINK)
    one, other = (way.seconds(16, found.size, LINK.alpha, LINK.beta) for way in ways)
    assert one == pytest.approx(other)
    assert (found.below, found.above) == ("tree", "scatter-doubling")
    assert list(crossovers(ways, 16, Link(1e-6, 0.0))) == []


@pytest.fixture
def run(tmp_path):
    """Reads what so many ranks would have measured, in a ring."""

    def made(n, **more):
        way = find("all_reduce", "ring")
        rows = [
            one_row(size, way.seconds(n, size, LINK.alpha, LINK.beta), seed=n) for size in SIZES
        ]
        path = tmp_path / f"{n}.json"
        written(path, document(one_series(rows, group_size=n, world_size=n), **more))
        return read(path)

    return made


def test_eight_ranks_are_predicted_from_two_and_four(run):
    report = study([run(2), run(4)], against=[run(8)])
    (found,) = report.predictions
    assert (found.n, found.source, found.misfit) == (8, "ring", "")
    assert [row.size for row in found.rows] == list(SIZES)
    for row in found.rows:
        assert row.measured is not None
        assert row.seconds["ring"] == pytest.approx(row.measured, rel=0.1)


def test_a_million_ranks_take_no_loop_over_them(run):
    recordings = [run(2), run(4)]
    begin = time.perf_counter()
    report = study(recordings, ranks=[1_000_000], sizes=[1 << 20])
    assert time.perf_counter() - begin < 30, "a bound against a hang, no benchmark"
    (found,) = report.predictions
    (row,) = found.rows
    assert row.seconds["ring"] == pytest.approx(
        2 * 999_999 * 30e-6 + 2 * (1 << 20) * 0.5e-9, rel=0.05
    )
    assert row.fastest == "halving-doubling"
    assert row.measured is None
    assert [each.above for each in found.crossovers] == ["halving-doubling", "ring"]


def test_what_does_not_go_together_is_refused(run):
    with pytest.raises(UsageError, match="none of the measured"):
        study([run(2)], algorithm="bruck")
    other = run(4)
    strange = run(4, series=[one_series(command="broadcast", op="broadcast")])
    with pytest.raises(UsageError, match="nothing of what is fitted"):
        study([run(2), other], against=[strange])


def test_files_of_two_machines_are_noted(run):
    there = run(4, environment={"host": "elsewhere", "processor": "Imaginary CPU", "cores": 2})
    notes = study([run(2), there]).notes
    assert any("host elsewhere, not box" in note for note in notes)
    assert study([run(2), run(8)]).notes == ()
