"""bench compare: changes between two files, and their display."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benches import SIZES, document, hockney, one_row, one_series, recording, written
from golden import golden

from distdemo.bench.compare import change_of, compare
from distdemo.bench.files import BenchFile
from distdemo.bench.records import Answer, Series
from distdemo.bench.records_files import Change, CompareReport
from distdemo.bench.view_files import compare_view
from distdemo.errors import UsageError
from distdemo.view.blocks import Summary
from distdemo.view.console import Signs


def scaled(factor: float, seed: int = 1, **options: Any) -> Series:
    return one_series(
        [one_row(size, factor * hockney(size), seed=seed, **options) for size in SIZES]
    )


def pair(factor: float, **options: Any) -> CompareReport:
    """Compare two runs, the second slower by a factor."""
    old = recording("old.json", scaled(1.0, **options))
    return compare(old, recording("new.json", scaled(factor, seed=2, **options)), 0.1)


def disturbed(series: Series) -> Series:
    """Return the series as measured while other programs took time from its ranks."""
    why = "other programs took 0.97 cores from the ranks"
    rows = (replace(row, answer=Answer.DISTURBED, why=why) for row in series.rows)
    return replace(series, rows=tuple(rows))


def test_a_series_that_was_disturbed_in_either_file_is_undecided():
    steady, slow = scaled(1.0), scaled(9.0, seed=2)
    for old, new, file in ((disturbed(steady), slow, "old"), (steady, disturbed(slow), "new")):
        report = compare(recording("old.json", old), recording("new.json", new), 0.1)
        assert (report.outcome, report.ok) == (Change.UNKNOWN, True)
        why = "was disturbed: other programs took 0.97 cores from the ranks."
        assert report.disturbed == (f"{file}.json {why}",)


def test_no_change_requires_an_interval_that_rules_out_a_change():
    for ratio, interval, change in (
        (1.09, (0.01, 46.4), Change.UNKNOWN),
        (1.0, (0.78, 1.29), Change.NONE),
        (1.0, (0.78, 1.31), Change.UNKNOWN),
        (1.0, (0.76, 1.29), Change.UNKNOWN),
        (1.5, (1.06, 46.4), Change.SLOWER),
        (0.5, (0.01, 0.94), Change.FASTER),
        (1.0, None, Change.UNKNOWN),
    ):
        assert change_of(ratio, interval, 0.1) is change, (ratio, interval)


def test_one_row_among_many_that_is_ten_times_slower_is_found():
    def many(name: str, seed: int, slow: int | None = None) -> BenchFile:
        made = []
        for number in range(30):
            rows = [one_row(size, hockney(size), seed=seed + number, launches=6) for size in SIZES]
            if slow == number:
                rows[4] = one_row(SIZES[4], 10 * hockney(SIZES[4]), seed=7, launches=6)
            made.append(one_series(rows, backend=f"backend{number}"))
        return recording(name, *made, setups=())

    report = compare(many("old.json", 0), many("new.json", 100, 13), 0.1)
    assert not [row for row in report.rows if row.change is Change.UNKNOWN]
    slow = [row for row in report.rows if row.change is Change.SLOWER]
    everything, *_ = compared = report.series[13].rows
    assert slow in ([compared[5]], [everything, compared[5]])
    assert report.outcome is Change.SLOWER


def test_a_file_compared_with_itself_has_no_change_in_any_row():
    series = [scaled(1.0, noise=0.9, launches=launches) for launches in (8, 1)]
    for one in (*series, disturbed(series[0])):
        same = recording("same.json", one)
        report = compare(same, same, 0.1)
        assert {(row.change, row.interval) for row in report.rows} == {(Change.NONE, (1.0, 1.0))}
        assert report.ok
        assert report.notes == ("Both files have the same times: they are one measurement.",)


def test_files_without_a_common_row_are_an_error_that_names_the_difference():
    new = recording("new.json", one_series([one_row(12, 1e-3)], world_size=4))
    with pytest.raises(UsageError, match="no row in common") as caught:
        compare(recording("old.json"), new)
    assert "4 ranks" in caught.value.why


@pytest.mark.processes
def test_a_file_not_written_by_bench_is_an_error(tmp_path, command):
    path, old = tmp_path / "new.json", written(tmp_path / "old.json", document())
    whole = json.loads(Path(old).read_text())
    one, *_ = whole["series"]
    bad_row = {**one["rows"][0], "times_s": [[1.0, "soon"]]}
    soon = {**whole, "series": [{**one, "rows": [bad_row]}]}
    unknown = {**whole, "series": [{**one, "spec": {**one["spec"], "op": {"name": "evil"}}}]}
    for content, words in (
        ("{", "is not a file of distdemo bench"),
        (json.dumps({**whole, "schema_version": 1}), "version 1"),
        (json.dumps(soon), "series: rows: times_s: 'soon' is no"),
        (json.dumps(unknown), "unknown operation, evil"),
    ):
        path.write_text(content)
        code, out, err = command("bench", "compare", old, str(path))
        assert (code, out) == (2, ""), words
        assert words.lower() in " ".join(err.lower().split())


def test_a_size_that_only_one_file_has_is_no_agreement():
    whole = scaled(1.0)
    fewer = replace(whole, rows=whole.rows[1:])
    for old, new, unmatched in ((whole, whole, 0), (whole, fewer, 1), (fewer, whole, 1)):
        report = compare(recording("old.json", old), recording("new.json", new))
        verdict = [block for block in compare_view(report, Signs()) if isinstance(block, Summary)]
        assert (report.unmatched, report.ok) == (unmatched, True)
        assert [block.ok for block in verdict] == [None if unmatched else True]


# ---------------------------------------------------------------------- views and command line


def another_machine() -> CompareReport:
    """Compare runs on two machines; each file has sizes of its own."""
    there = {"host": "other", "processor": "Imaginary CPU", "cores": 2, "OMP_NUM_THREADS": "1"}
    new = disturbed(scaled(1.5, seed=2))
    note = "Blocks of one world replace launches."
    new_file = recording("new.json", new, environment=there, notes=(note,))
    old = scaled(1.0)
    old = replace(old, rows=(*old.rows[1:], one_row(7, 1e-4)))
    return compare(recording("old.json", old, one_series(op="broadcast")), new_file, 0.1)


REPORTS = {"slower": pair(1.5), "few": pair(2.0, launches=3), "machine": another_machine()}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report(name):
    file = Path(__file__).parent / "golden" / f"compare_{name}.txt"
    golden(file, partial(compare_view, REPORTS[name]))


@pytest.mark.processes
def test_the_exit_code_follows_fail_over(tmp_path, command):
    old = written(tmp_path / "old.json", document(scaled(1.0)))
    new = written(tmp_path / "new.json", document(scaled(1.3, seed=2)))
    few = written(tmp_path / "few.json", document(scaled(1.0, launches=1)))
    over = ("--fail-over", "10%")
    for line, expected, words in (
        ((old, new), 0, "! Slower by more than 10%: 12 sizes slower."),
        ((new, old, *over, "-q"), 0, "✓ Faster by more than 10%"),
        ((old, new, "--fail-over", "50%", "-q"), 0, "✓ No change beyond 50%"),
        ((old, few, *over, "-q"), 0, "! Can't tell"),
        ((old, new, *over, "-q"), 1, "✗ Failed by --fail-over 10%: Slower by"),
        ((old, few, "--fail-over", "10"), 2, "--fail-over 10: not a share between 0 and 1."),
    ):
        code, out, err = command("bench", "compare", *line)
        assert (code, bool(err)) == (expected, expected == 2), line
        assert words in " ".join((out + err).split())
    code, out, err = command("bench", "compare", old, new, *over, "--format", "json")
    content = json.loads(out)
    assert (code, err, content["fail_over"], content["outcome"]) == (1, "", 0.1, "slower")
    assert content["errors"][0]["what"].startswith("Failed by --fail-over 10%: ")
