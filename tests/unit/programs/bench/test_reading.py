"""A file of bench is read as it is written, and what is none is refused with a reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from distdemo.bench.view_document import bench_document
from hypothesis import given, settings
from hypothesis import strategies as st
from measurements import made_report, made_series
from recordings import SIZES, document, one_series, setup, written

from distdemo.bench import reading
from distdemo.bench.reading import read
from distdemo.bench.values import MOST_LAUNCHES
from distdemo.errors import UsageError
from distdemo.view.document import dumps


def test_what_bench_writes_is_read_whole(tmp_path):
    report = made_report(made_series(), made_series("broadcast", in_place=True))
    path = tmp_path / "run.json"
    path.write_text(dumps(bench_document(report)))
    found = read(path)
    assert (found.ok, found.notes, len(found.series)) == (True, (), 2)
    for series, source in zip(found.series, report.series, strict=True):
        assert series.key.command == source.spec.command
        assert (series.key.n, series.world_size, series.groups) == (2, 2, 1)
        assert series.key.in_place == source.spec.in_place
        assert [row.size for row in series.rows] == [row.size for row in source.rows]
        assert [row.times for row in series.rows] == [row.times for row in source.rows]
    assert found.series[0].op == "all_reduce"
    assert found.series[0].key.reduce_op == "sum"
    assert found.environment["host"] == "box"
    limits = report.setups["gloo"].limits
    assert [each.bandwidth for each in found.limits] == [each.bandwidth for each in limits]
    gauges = report.setups["gloo"].gauges
    assert [(each.backend, each.kind, each.ranks, each.times) for each in found.gauges] == [
        ("gloo", each.kind, 2, each.times) for each in gauges
    ]


def refused(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(path)
    error = caught.value
    assert all((error.what, error.why, error.hint))
    assert "\n" not in error.what + error.why + error.hint
    return error


def test_what_is_no_file_is_refused(tmp_path):
    assert "There is no such file" in refused(tmp_path / "none.json").why
    assert "folder" in refused(tmp_path).why
    os.mkfifo(tmp_path / "pipe")
    assert "no file" in refused(tmp_path / "pipe").why, "and nobody waits for a writer"
    refused(Path("zero\0byte.json"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"x": ' + "1" * 5000 + "}", "that is no"),
        ("[1, 2]", "no document"),
        ("{}", "no document"),
        (json.dumps({"command": "train", "schema_version": 1}), "document of 'train'"),
        (json.dumps({"command": ["bench"], "schema_version": 1}), "document of"),
        (json.dumps({"command": "bench", "schema_version": 2}), "version 2"),
        (json.dumps({"command": "bench", "schema_version": True}), "version True"),
        (json.dumps({"command": "bench", "schema_version": 1}), "no times"),
        (json.dumps({"command": "bench", "schema_version": 1, "series": 3}), "no times"),
        (json.dumps(document(one_series([]))), "no times"),
        (json.dumps(document(one_series([{"bytes": 8}]))), "no times"),
        (json.dumps(document(one_series(group_size=None))), "no times"),
    ],
)
def test_what_is_no_measurement_is_refused(content, words, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    assert words in refused(path).what


def test_a_file_beyond_all_measure_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGEST", 1000)
    written(tmp_path / "x.json", document())
    assert "too large" in refused(tmp_path / "x.json").what


def test_what_is_no_time_is_dropped(tmp_path):
    times = [[1e-3, "NaN", None, -1, 0, True, "2", 1e-3], [], "x", [2e-3, 10**400], [float("inf")]]
    rows: list[Any] = [
        {"bytes": 8, "times_seconds": times},
        {"bytes": -4, "times_seconds": [[1.0]]},
        7,
    ]
    path = tmp_path / "x.json"
    written(path, document(one_series(rows)))
    (row,) = read(path).series[0].rows
    assert row.times == ((1e-3, 1e-3), (), (), (2e-3,), ())
    assert row.launches == (1e-3, 2e-3)
    assert row.seconds == 1e-3


def test_what_no_gauge_of_a_machine_can_show_is_dropped(tmp_path):
    times = [[1e-300, 2e-7, "x"], "none", [], [1e299], [3e-7]]
    gauges: list[Any] = [{"kind": "core to core", "times_seconds": times}, 7, {"kind": "copy"}]
    path = tmp_path / "x.json"
    written(path, document(setups={"gloo": setup() | {"world_size": 2, "gauges": gauges}}))
    (gauge,) = read(path).gauges
    assert (gauge.kind, gauge.ranks) == ("core to core", 2)
    assert gauge.times == ((2e-7,), (), (), (), (3e-7,))


def test_a_run_that_failed_or_was_cut_short_is_taken_with_a_note(tmp_path):
    path = tmp_path / "x.json"
    written(path, document(ok=False, interrupted=True))
    assert "was interrupted" in read(path).notes[0]
    written(path, document(ok=False, errors=[{"what": "Rank 1 was \x1b[31mkilled."}]))
    found = read(path)
    assert not found.ok
    assert found.notes[0].endswith("failed: Rank 1 was [31mkilled.")
    written(path, document(one_series(), one_series()))
    assert "twice" in read(path).notes[0]
    assert len(read(path).series) == 1


def test_too_many_launches_are_put_together(tmp_path):
    launches = 5 * MOST_LAUNCHES + 3
    rows = [{"bytes": 8, "times_seconds": [[1e-3 + at] for at in range(launches)]}]
    path = tmp_path / "x.json"
    written(path, document(one_series(rows)))
    (row,) = read(path).series[0].rows
    assert len(row.times) <= MOST_LAUNCHES
    assert sum(map(len, row.times)) == launches


def test_rows_are_in_order_and_none_comes_twice(tmp_path):
    rows = [{"bytes": size, "times_seconds": [[1e-3]]} for size in (64, 8, 64)]
    path = tmp_path / "x.json"
    written(path, document(one_series(rows)))
    assert [row.size for row in read(path).series[0].rows] == [8, 64]
    written(path, document())
    assert tuple(row.size for row in read(path).series[0].rows) == SIZES


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = ("environment", "versions", "setups", "series", "errors", "ok", "interrupted")
SETUP = ("limits", "gauges", "launches", "world_size", "engine")
INNER = (
    "group_size",
    "world_size",
    "groups",
    "rows",
    "command",
    "backend",
    "form",
    "root",
    "dtype",
)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_document_makes_it_stumble(tmp_path_factory, data):
    changes = data.draw(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3))
    setups = {"gloo": data.draw(st.dictionaries(st.sampled_from(SETUP), JSON, max_size=2))}
    inner = data.draw(st.dictionaries(st.sampled_from(INNER), JSON, max_size=3))
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    whole = document(one_series(**inner), setups=setups)
    path.write_text(json.dumps({**whole, **changes}))
    try:
        found = read(path)
    except UsageError:
        return
    assert all(series.rows for series in found.series)
