"""JSON and CSV of a measurement: all of it, and the same numbers in both."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from measurements import SIZES, made_failure, made_overlap, made_report, made_row, made_series

from distdemo.bench.old_records import BenchReport, Sized
from distdemo.bench.view_csv import bench_csv
from distdemo.bench.view_document import bench_document
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.view.document import dumps


def parsed(report: BenchReport) -> Any:
    return json.loads(dumps(bench_document(report)))


def lines(text: str) -> list[dict[str, str]]:
    body = "".join(f"{line}\r\n" for line in text.split("\r\n") if line and line[0] != "#")
    return list(csv.DictReader(io.StringIO(body, newline="")))


def test_the_document_holds_every_iteration() -> None:
    report = made_report()
    found = parsed(report)
    assert found["command"] == "bench"
    assert found["ok"] is True
    assert found["errors"] == []
    assert found["spec"]["budget_seconds"] == 8.0
    assert found["spec"]["dtype"] == "float32"
    assert found["setups"]["gloo"]["bound"]["bandwidth_bytes_per_second"] == 4e9
    assert found["setups"]["gloo"]["alignment"]["spread_p99_seconds"] == 2.1e-6
    gauge = found["setups"]["gloo"]["gauges"][1]
    assert gauge == {"kind": "arithmetic", "times_seconds": [[30e-6], [31e-6], [], [30e-6]]}
    series = found["series"][0]
    assert (series["op"], series["command"], series["group_size"]) == (
        "all_reduce",
        "all-reduce",
        2,
    )
    assert [row["bytes"] for row in series["rows"]] == list(SIZES)
    for row, made in zip(series["rows"], report.series[0].rows, strict=True):
        assert row["times_seconds"] == [list(launch) for launch in made.times]
        assert row["median_seconds"] == made.median
        assert row["interval_seconds"] == list(made.interval or ())


def test_csv_has_the_numbers_of_the_document() -> None:
    rows = tuple(made_row(size, overlap=made_overlap(size)) for size in SIZES)
    report = made_report(made_series(rows=rows), made_series(backend="mpi", in_place=True))
    document = parsed(report)
    entries = [(s, row) for s in document["series"] for row in s["rows"]]
    for line, (series, row) in zip(lines(bench_csv(report)), entries, strict=True):
        assert line["backend"] == series["backend"]
        assert line["in_place"] == str(series["in_place"]).lower()
        for name in ("median_seconds", "p99_seconds", "busbw_bytes_per_second", "bytes", "wrong"):
            assert float(line[name]) == row[name]
        assert float(line["interval_low_seconds"]) == row["interval_seconds"][0]
        assert line["verdict"] == row["verdict"]["kind"]
        assert int(line["group_size"]) == series["group_size"]
        assert line["overlap_hidden"] == (str(row["overlap"]["hidden"]) if row["overlap"] else "")


def test_csv_says_between_which_ranks_it_was() -> None:
    pair = OpSpec("p2p", 4, shape=(2,), pattern="pair", src=2, dst=3, async_op=True)
    rooted = OpSpec("broadcast", 4, shape=(2,), root=1, members=(0, 1, 2, 3))
    one = made_series("p2p", points=(Sized(8, (pair,)),), rows=(made_row(8),))
    other = made_series("broadcast", points=(Sized(8, (rooted,)),), rows=(made_row(8),))
    sent, cast = lines(bench_csv(made_report(one, other)))
    assert (sent["pattern"], sent["src"], sent["dst"], sent["root"]) == ("pair", "2", "3", "")
    assert (cast["pattern"], cast["src"], cast["root"], cast["group_size"]) == ("", "", "1", "4")


@pytest.mark.parametrize(
    ("op", "more", "command"),
    [
        (
            OpSpec("all_reduce", 2, "int64", (8,), "max", async_op=True),
            {},
            "all-reduce -n 2 --backend gloo --shape 8 --dtype int64 --reduce-op max --async",
        ),
        (
            OpSpec("scatter", 3, "int8", (4,), root=2, members=(0, 2), variant="list"),
            {"world": WorldSpec(4, "nccl", "cuda")},
            "scatter -n 4 --backend nccl --device cuda --shape 4 --dtype int8 --root 2 --group 0,2",
        ),
        (
            OpSpec("all_gather", 2, "int8", (4,), variant="single", in_place=True),
            {"size": 8},
            "bench all-gather -n 2 --backend gloo -b 8 -e 8 --iters 1 --placement in --dtype int8",
        ),
        (
            OpSpec("p2p", 4, shape=(8,), pattern="ring", async_op=True),
            {"world": WorldSpec(4)},
            "p2p -n 4 --backend gloo --shape 8 --dtype float32 --pattern ring --nonblocking",
        ),
        (OpSpec("barrier", 2, shape=()), {"size": 0}, "barrier -n 2 --backend gloo"),
    ],
    ids=lambda each: each.op if isinstance(each, OpSpec) else "",
)
def test_wrong_elements_come_with_the_command_that_shows_them(
    op: OpSpec, more: dict[str, Any], command: str
) -> None:
    size = more.pop("size", 32)
    series = made_series(
        op.op.replace("_", "-"),
        points=(Sized(size, (op,)),),
        rows=(made_row(size, wrong=2, judgement=None),),
        **more,
    )
    (error,) = parsed(made_report(series))["errors"]
    assert error["hint"] == f"See for yourself: distdemo {command}"


def test_csv_tells_what_it_depends_on_in_comments() -> None:
    report = made_report(environment={"host": "box", "NCCL_X": 'a,b\n"c"\r\nd'})
    text = bench_csv(report)
    assert '# NCCL_X: a,b "c" d\r\n' in text
    assert "# torch: 2.13.0\r\n" in text
    assert "# gloo limit: TCP stream, 4000000000.0 bytes per second\r\n" in text
    assert text.count("\n") == text.count("\r\n")


def test_csv_leaves_empty_what_is_not_known() -> None:
    row = made_row(8, interval=None, steady=False, judgement=None)
    found = lines(bench_csv(made_report(made_series(rows=(row,)))))[0]
    for name in ("interval_low_seconds", "limit_share", "verdict", "overlap_hidden"):
        assert found[name] == ""
    assert found["steady"] == "false"


@pytest.mark.parametrize(
    ("report", "what"),
    [
        (made_report(made_series(rows=(made_row(8, wrong=2),))), "gave wrong elements at 8 B"),
        (made_report(made_series(rows=(made_row(8),), error="It broke.")), "not measured to its"),
        (made_report(failure=made_failure()), "killed by SIGKILL"),
        (made_report(interrupted=True), "was interrupted"),
        (made_report(made_series(refused="No.")), "Nothing was measured"),
        (made_report(made_series(rows=())), "Nothing was measured"),
    ],
)
def test_what_is_not_ok_has_an_error_and_is_told_in_csv(report: BenchReport, what: str) -> None:
    found = parsed(report)
    assert found["ok"] is False
    assert any(what in error["what"] for error in found["errors"])
    assert all(set(error) >= {"what", "why", "hint"} for error in found["errors"])
    bench_csv(report)


def test_what_is_refused_among_others_is_no_error() -> None:
    report = made_report(made_series(), made_series("all-gather", "mpi", refused="No."))
    found = parsed(report)
    assert found["ok"] is True
    assert found["errors"] == []
    assert found["series"][1]["refused"] == "No."
    assert "# not measured, all-gather: No.\r\n" in bench_csv(report)
