"""``bench`` as a user runs it: its views agree, its files are written, an early end keeps rows."""

from __future__ import annotations

import csv
import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers import PATIENCE, children, commanded, free_port, wait_until

from distdemo import backends
from distdemo.bench.parse_bench import parse_bench
from distdemo.bench.view_again import again
from distdemo.cli import options

SHORT = ["--iters", "3", "--launches", "1", "-e", "1K", "--no-limits"]
# A world of it takes a moment, and there are many: something is measured while much is left to do.
LONG = ["bench", "-e", "32", "--iters", "60000", "--launches", "60", "--no-limits"]


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def measured(command, *arguments, status=0):
    code, out, err = command("bench", *arguments, *SHORT, "--format", "json")
    assert (code, err) == (status, ""), out
    return json.loads(out)


def test_the_document_has_every_size_of_every_series(command):
    found = measured(command, "all-reduce", "all-gather", "-n", "3", "-b", "12", "--warmup", "1")
    assert found["command"] == "bench"
    assert found["ok"] is True
    assert found["errors"] == []
    assert [(each["command"], each["in_place"]) for each in found["series"]] == [
        ("all-reduce", True),
        ("all-gather", False),
        ("all-gather", True),
    ]
    for series in found["series"]:
        assert [row["bytes"] for row in series["rows"]] == [12, 48, 192, 768]
        for row in series["rows"]:
            assert row["iterations"] == sum(map(len, row["times_seconds"])) == 3
            assert row["wrong"] == 0
            assert row["checked"] > 0
            assert 0 < row["min_seconds"] <= row["median_seconds"] <= row["max_seconds"]


def test_the_table_ends_with_the_verdict_which_is_all_that_quiet_shows(command):
    code, out, err = command("bench", "scatter", *SHORT)
    assert (code, err) == (0, "")
    assert "scatter · list · gloo · 2 ranks" in out
    code, brief, err = command("bench", "scatter", *SHORT, "-q")
    assert (code, err) == (0, "")
    assert brief.startswith("✓ 8 sizes in 2 series")
    assert "busbw up to" in brief
    assert "scatter · list" not in brief
    assert any(each.startswith("✓ 8 sizes in 2 series") for each in out.splitlines())


def test_the_files_hold_what_is_shown(command, tmp_path):
    document, plot = tmp_path / "new.json", tmp_path / "new.svg"
    files = ["--output", str(document), "--plot", str(plot)]
    code, out, err = command("bench", "reduce", "--root", "1", *SHORT, *files, "--format", "csv")
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    (series,) = json.loads(document.read_text(encoding="utf-8"))["series"]
    for shown, row in zip(csv.DictReader(lines), series["rows"], strict=True):
        assert shown["op"] == "reduce"
        assert int(shown["bytes"]) == row["bytes"]
        assert float(shown["median_seconds"]) == row["median_seconds"]
    assert plot.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_a_text_file_has_the_table_without_colours(command, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = tmp_path / "new.txt"
    few = ["--iters", "1", "-e", "32", "--no-limits"]
    code, *_ = command("bench", "barrier", "broadcast", *few, "--output", str(file))
    text = file.read_text(encoding="utf-8")
    assert code == 0
    assert "barrier · gloo · 2 ranks" in text
    assert "broadcast · gloo · 2 ranks" in text
    assert "\x1b" not in text


def test_a_file_that_turns_out_to_be_unwritable_costs_the_exit_code_not_the_result(
    command, tmp_path
):
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    code, out, err = command(
        "bench", "barrier", "--iters", "1", "--no-limits", "--output", str(full)
    )
    assert code == 1
    assert "barrier · gloo" in out
    assert "that could not be written" in " ".join(err.split())


def test_whatever_a_plot_does_the_result_is_shown_and_the_other_file_written(
    command, tmp_path, monkeypatch
):
    def fails(*_):
        raise ValueError("Unknown\nsymbol")

    monkeypatch.setattr("distdemo.bench.view_plot.plot", fails)
    files = ["--plot", f"{tmp_path}/a.svg", "--output", f"{tmp_path}/a.json"]
    code, out, err = command("bench", "barrier", "--iters", "1", "--no-limits", *files)
    assert code == 1
    assert "barrier · gloo" in out
    assert "Traceback" not in err
    for words in ("--plot", "could not be made", "ValueError: Unknown symbol", "another ending"):
        assert words in " ".join(err.split())
    assert os.listdir(tmp_path) == ["a.json"]
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["ok"] is True


def test_where_standard_output_is_full_the_file_is_written_all_the_same(temporary, tmp_path):
    line = ["bench", "barrier", "--iters", "1", "--no-limits", "--output", f"{tmp_path}/a.json"]
    with Path("/dev/full").open("w") as full, commanded(line, temporary, stdout=full) as run:
        code, _, err = run.finish()
    assert code == 1
    assert "The result could not be written." in err
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["ok"] is True


def test_groups_and_calls_that_do_not_block(command):
    line = "broadcast -n 4 --split 2 --overlap --root 1 -b 1K"
    found = measured(command, *line.split())
    (series,) = found["series"]
    assert (series["group_size"], series["groups"], series["async"]) == (2, 2, True)
    (row,) = series["rows"]
    assert 0 <= row["overlap"]["hidden"] <= 1


def test_what_the_backend_refuses_stands_beside_what_it_does(command):
    found = measured(command, "all-reduce", "barrier", "--dtype", "int16")
    reduced, barrier = found["series"]
    assert reduced["rows"] == []
    assert "gloo can't do all-reduce" in reduced["refused"]
    assert [row["bytes"] for row in barrier["rows"]] == [0]


def test_two_backends_side_by_side(temporary):
    if backends.REGISTRY["mpi"].missing() is not None:
        pytest.skip("there is no MPI here")
    arguments = ["bench", "all-reduce", "--backend", "gloo,mpi", *SHORT, "--format", "json"]
    with commanded(arguments, temporary) as run:
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [series["backend"] for series in found["series"]] == ["gloo", "mpi"]
    assert all(len(series["rows"]) == 4 for series in found["series"])
    assert set(found["setups"]) == {"gloo", "mpi"}


def test_a_world_that_two_terminals_make_is_measured_once_over_all_launches(temporary):
    where = ["--nnodes", "2", "--master", f"127.0.0.1:{free_port()}"]
    arguments = ["bench", "all-reduce", "--iters", "2", "-e", "32", "--no-limits", *where]
    for node in range(2):
        (temporary / str(node)).mkdir()
    with ExitStack() as stack:
        sites = [
            stack.enter_context(
                commanded(
                    [*arguments, "--node-rank", str(node), "--format", "json"],
                    temporary / str(node),
                )
            )
            for node in range(2)
        ]
        (code, out, err), (other_code, other_out, _) = [site.finish() for site in sites]
        for site in sites:
            site.leaves_nothing()
    assert (code, err, other_code, other_out) == (0, "", 0, "")
    found = json.loads(out)
    assert [row["iterations"] for row in found["series"][0]["rows"]] == [2, 2]
    assert found["setups"]["gloo"]["launches"] == 3


@pytest.mark.parametrize(
    ("op", "flags"),
    [
        ("all-reduce", {"bench_dtype": "int32", "bench_reduce_op": "product", "bench_async": True}),
        ("reduce-scatter", {"bench_size": "3", "bench_reduce_op": "max", "placement": "out"}),
        ("scatter", {"bench_size": "4", "split": "%2", "root": "1", "placement": "out"}),
        ("gather", {"bench_size": "4", "split": "/2"}),
        ("broadcast", {"bench_size": "4", "group": "1,3", "root": "1"}),
        ("p2p", {"bench_size": "3", "src": "2", "dst": "1", "bench_async": True}),
        ("p2p", {"bench_size": "3", "bench_pattern": "ring"}),
        ("all-to-all", {"bench_dtype": "f64", "bench_variant": "list"}),
        ("all-gather", {"placement": "in", "bench_async": True}),
        ("barrier", {}),
    ],
)
def test_the_command_that_is_to_show_an_error_runs_the_same(op, flags, command):
    sizes = {} if op == "barrier" else {"min_bytes": "48", "max_bytes": "48"}
    given = {name: options.ALL.get(name, (None, None))[1] for name in options.BENCH}
    spec = parse_bench(given | sizes | flags | {"bench_ops": [op]}).spec.series[0]
    (point,) = spec.points
    words, asked = again(spec, point.size).split()[1:], point.specs[0]
    quick = ["--no-limits"] if asked.in_place else []  # how it is measured does not matter
    code, out, err = command(*words, *quick, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    if asked.in_place:
        (ran,) = found["series"]
        assert (ran["in_place"], ran["async"], ran["form"]) == (True, asked.async_op, spec.form)
        return
    ran = found["spec"]
    for name in ("op", "world_size", "dtype", "reduce_op", "root", "src", "dst", "pattern"):
        assert ran[name] == getattr(asked, name)
    form = (list(asked.shape), asked.async_op, spec.form)
    assert (ran["shape"], ran["async"], ran["form"]) == form
    assert found["groups"] == [list(each.members) for each in point.specs if each.members]


# ------------------------------------------------------------------------------------ early ends


def under_way(run):
    """Wait until the third world has begun: what the second has timed is known by then."""
    seen = set()

    def begun():
        seen.update(children(run.process.pid))
        return len(seen) >= 6

    assert wait_until(begun, PATIENCE)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_signal_keeps_what_was_measured_and_writes_it(number, status, temporary, tmp_path):
    file = tmp_path / "cut.json"
    arguments = [*LONG, "--format", "json", "--output", str(file)]
    with commanded(arguments, temporary) as run:
        under_way(run)
        os.kill(run.process.pid, number)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (status, "")
    found = json.loads(out)
    assert (found["ok"], found["interrupted"]) == (False, True)
    assert [row["bytes"] for row in found["series"][0]["rows"]] == [8, 32]
    assert json.loads(file.read_text(encoding="utf-8")) == found


def test_a_rank_that_dies_in_the_middle_keeps_the_finished_rows(temporary):
    with commanded([*LONG, "--format", "json"], temporary) as run:
        under_way(run)
        os.kill(run.ranks(2)[1], signal.SIGKILL)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert found["ok"] is False
    assert any("SIGKILL" in error["what"] for error in found["errors"])
    rows = found["series"][0]["rows"]
    assert [row["bytes"] for row in rows] == [8, 32]
    assert all(row["iterations"] >= 1000 for row in rows)
