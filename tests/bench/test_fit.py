"""bench fit: recover α and β from times computed with them, and predict other worlds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benches import SIZES, document, one_row, one_series, recording, row, written
from golden import golden

from distdemo import schedules
from distdemo.bench.files import BenchFile
from distdemo.bench.fit import costs_of, fit, make_report, solve
from distdemo.bench.records import Answer, Series
from distdemo.bench.records_files import FitReport
from distdemo.bench.view_files import fit_view
from distdemo.errors import UsageError

ALPHA, BETA = 30e-6, 0.5e-9
PAIRS = [("p2p", "message"), *((algorithm.op, algorithm.name) for algorithm in schedules.REGISTRY)]


def seconds(op: str, name: str, ranks: int, size: int) -> float:
    cost = next(cost for cost in costs_of(op, ranks) if cost.algorithm == name)
    return cost.seconds(size, ALPHA, BETA)


def series_of(op: str, name: str, ranks: int, noise: float = 0.0) -> Series:
    """Return a series of this number of ranks with the times of this algorithm."""
    rows = [
        one_row(size, seconds(op, name, ranks, size), seed=ranks, noise=noise) for size in SIZES
    ]
    return one_series(rows, op=op, world_size=ranks, in_place=False)


def run(ranks: int, op: str = "all_reduce", name: str = "ring", noise: float = 0.0) -> BenchFile:
    """Return the recording that this number of ranks would have made."""
    return recording(f"{op}-{name}-{ranks}.json", series_of(op, name, ranks, noise))


def test_alpha_and_beta_are_recovered_by_every_algorithm() -> None:
    for op, name in PAIRS:
        (series,), left_out = fit([run(ranks, op, name) for ranks in (2, 3, 4)])
        assert left_out == []
        (best,) = (fit for fit in series.fits if fit.algorithm == name)
        link = (best.alpha_s, best.beta_s_per_byte)
        assert link == pytest.approx((ALPHA, BETA), rel=1e-6), name
        assert best.max_error < 1e-6
        assert best.is_good


def test_alpha_and_beta_are_never_negative() -> None:
    paid = [(1.0, float(size)) for size in SIZES]
    assert solve(paid, [size * 1e-9 for size in SIZES])[:2] == pytest.approx((0, 1e-9), abs=1e-12)
    alpha, beta, _ = solve(paid, [1e-3 / (1 + size) for size in SIZES])
    assert alpha > 0
    assert beta == pytest.approx(0, abs=1e-12)


def test_only_several_numbers_of_ranks_identify_the_algorithm() -> None:
    for recordings, first, ranks in (
        ([run(2, name="doubling")], "ring", (2,)),
        ([run(2, "p2p", "message")], "message", (2,)),
        ([run(n, noise=0.03) for n in (2, 4)], "ring", (2, 4)),
        ([run(n, name="doubling", noise=0.03) for n in (2, 8)], "doubling", (2, 8)),
    ):
        (series,), _ = fit(recordings)
        assert (series.fits[0].algorithm, series.ranks) == (first, ranks)


def test_the_algorithm_that_the_ranks_ran_is_fitted() -> None:
    series = series_of("all_reduce", "doubling", 4)
    named = replace(series, spec=replace(series.spec, algorithm="doubling"))
    (fitted,), _ = fit([recording("doubling.json", named)])
    (only,) = fitted.fits
    assert only.algorithm == "doubling"
    assert only.alpha_s == pytest.approx(ALPHA, rel=1e-6)


def test_many_ranks_are_predicted() -> None:
    report = make_report([run(2), run(4)], ranks=[1000], sizes=[1 << 20, 1 << 10])
    assert [one.size_bytes for one in report.predictions] == [1 << 10, 1 << 20]
    for predicted in report.predictions:
        expected = seconds("all_reduce", "ring", 1000, predicted.size_bytes)
        assert predicted.predicted_s["ring"] == pytest.approx(expected, rel=1e-3)
    assert [one.fastest for one in report.predictions] == ["doubling", "halving-doubling"]
    few = make_report([run(2)], ranks=[8]).predictions
    assert [one.size_bytes for one in few] == [SIZES[0], SIZES[6], SIZES[-1]]


def test_a_series_that_was_disturbed_is_not_fitted() -> None:
    why = "other programs took 0.97 cores from the ranks"
    series = series_of("all_reduce", "ring", 4)
    disturbed = replace(series.rows[0], answer=Answer.DISTURBED, why=why)
    busy = replace(series, rows=(*series.rows[1:], disturbed))
    with pytest.raises(UsageError, match="No series can be fitted") as caught:
        make_report([run(2), recording("four.json", busy)], ranks=[8])
    assert caught.value.why.endswith(f"four.json was disturbed: {why}.")
    other = series_of("broadcast", "tree", 4)
    report = make_report([recording("four.json", busy, other)])
    assert [fitted.spec.op.op for fitted in report.series] == ["broadcast"]
    assert report.notes[0].endswith(f"{why}.")


# -------------------------------------------------------------------------- views, command line


def odd() -> FitReport:
    """Return the report of times that no algorithm fits, and of series that can't be fitted."""
    bent = {size: 5e-6 + size * 1e-9 if size < 1 << 15 else 4e-4 + size * 1e-11 for size in SIZES}
    rows = [row(time, size) for size, time in bent.items()]
    barrier = one_series(op="barrier", dtype="", reduce_op=None)
    single = one_series(op="broadcast", world_size=1)
    few = one_series([row(1e-4, size) for size in (8, 64)], op="all_gather")
    return make_report([recording("odd.json", one_series(rows), barrier, single, few)], ranks=[8])


def test_the_reports_without_predictions_from_a_model_that_does_not_fit() -> None:
    two = [run(2, noise=0.03), run(4, noise=0.03)]
    good = make_report(two, ranks=[1000], sizes=[1 << 10, 1 << 30])
    for name, report in (("one", odd()), ("two", good)):
        assert report.series[0].fits[0].is_good == bool(report.predictions) == (name == "two")
        golden(Path(__file__).parent / "golden" / f"fit_{name}.txt", partial(fit_view, report))


REFUSED = {
    "": "FILE",
    "none.json": "No such file",
    "{two} {two}": "given twice",
    "{two} --predict 1000001": "1,000,000",
}


@pytest.mark.processes
def test_usage_errors(command: Any, tmp_path: Path) -> None:
    two = written(tmp_path / "2.json", document(series_of("all_reduce", "ring", 2)))
    for line, words in REFUSED.items():
        code, out, err = command("bench", "fit", *line.format(two=two).split())
        assert (code, out) == (2, ""), line
        assert words in " ".join(err.split()), line
