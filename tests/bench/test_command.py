"""``bench`` as a user runs it: what it refuses, its views, its files, an early end."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import signal
from pathlib import Path

import pytest
from benches import series
from helpers import PATIENCE, children, commanded, wait_until

from distdemo.bench.answer import again
from distdemo.bench.controller import make_row
from distdemo.bench.records import BenchReport
from distdemo.encoding import decode

SHORT = ["--iters", "3", "--launches", "1", "-e", "1K", "--no-limits"]
# A world of it takes a moment, and there are many: something is measured while much is left to do.
LONG = ["bench", "-e", "32", "--iters", "60000", "--launches", "60", "--no-limits"]


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("-b gloo", "--min-bytes gloo: that is no number of bytes.", "--backend gloo?"),
        ("-b 3", "-b 3 is no whole number of float32 elements.", "Try -b 4."),
        ("-b 0", "-b 0 is no whole number of float32 elements.", "Try -b 4."),
        ("-b 64K -e 1K", "-b 64K -e 1K: there is no size between them.", "Try -b 1K -e 64K."),
        ("-f 1", "-f 1: the sizes would not grow.", "Try -f 2 or -f 4."),
        ("-f 1.001", "-b 8 -e 64M with this -f would be more than 200 sizes.", "larger -f."),
        ("-i 4", "-b 8 -e 64M with this -i would be more than 200 sizes.", "larger -i."),
        ("-i 4 -f 2", "-f and -i don't go together.", "Take one."),
        ("-e 1P", "--max-bytes 1P: that is no number of bytes.", "Try --max-bytes 64K."),
        ("-e 1T", "all-reduce of 512G bytes needs 1 TiB on 2 ranks.", "or fewer ranks."),
        ("all-reduc", "There is no operation 'all-reduc'.", "bench all-reduce"),
        ("--backend glo", "There is no backend 'glo'.", "Did you mean --backend gloo?"),
        ("--backend ,", "There is no backend ','.", "Try --backend auto."),
        ("barrier -e 1M", "-e means nothing to barrier.", "Leave it out."),
        ("broadcast --reduce-op sum", "--reduce-op means nothing to broadcast.", "Leave it out."),
        ("all-reduce --placement in", "--placement means nothing to all-reduce.", "Leave it out."),
        ("p2p -n 1", "--world-size 1 is too small: at least 2.", "Try --world-size 2."),
        ("p2p --src 1 --dst 1", "--src and --dst are both 1.", "Try --dst 0."),
        ("p2p --pattern ring --src 1", "--src and --dst don't go with --pattern ring.", "pair."),
        ("broadcast --root 3", "--root 3: there is no such rank.", "Try --root 1."),
        ("--iters 5 --budget 3", "--budget and --iters don't go together.", "Take one."),
        ("--iters 3 --launches 6", "--iters 3 is less than --launches 6.", "Try --iters 6."),
        ("all --iters 99999", "--iters 99999 at ", "or fewer sizes."),
        ("-n 3 --split 2", "--split 2: 3 ranks can't be cut like that.", "--world-size 4."),
        ("--dtype bool", "gloo can't do all-reduce", "complex128."),
        ("all-gather -n 3 -e 8", "There is no size of all-gather on 3 ranks", "Try -e 12."),
        ("--output x.yaml", "--output x.yaml: this ending is not known.", "Try --output x.json."),
        ("--plot x.html", "--plot x.html: this ending is not known.", "Try --plot x.png."),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_rank_starts(line, says, hint, command):
    code, out, err = command("bench", *line.split())
    assert (code, out) == (2, "")
    first, *_, last = err.strip().split("\n")
    assert first.startswith(says)
    assert last.endswith(hint) or hint in last


def test_help_fits_two_screens(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command("bench", "--help")
    assert code == 0
    assert len(out.splitlines()) <= 80
    assert out.index("--world-size") < out.index("--check-every")  # the common ones first


def test_the_document_has_every_size_of_every_series_and_can_be_read_back(command):
    words = ["all-reduce", "all-gather", "-n", "3", "-b", "12", *SHORT, "--format", "json"]
    code, out, err = command("bench", *words)
    assert (code, err) == (0, ""), out
    found = json.loads(out)
    assert [found[name] for name in ("schema_version", "command", "ok")] == [2, "bench", True]
    report = decode(BenchReport, found)
    assert [(each.spec.op, each.spec.in_place) for each in report.series] == [
        ("all_reduce", True),
        ("all_gather", False),
        ("all_gather", True),
    ]
    for each in report.series:
        assert [row.size_bytes for row in each.rows] == [12, 48, 192, 768]
        assert all((row.iterations, row.wrong) == (3, 0) and row.checked for row in each.rows)


def test_every_format_and_file_holds_the_same(command, tmp_path):
    document, plot = tmp_path / "new.json", tmp_path / "new.svg"
    files = ["--output", str(document), "--plot", str(plot)]
    code, out, err = command("bench", "reduce", "--root", "1", *SHORT, *files, "--format", "csv")
    assert (code, err) == (0, "")
    (found,) = json.loads(document.read_text(encoding="utf-8"))["series"]
    for shown, row in zip(csv.DictReader(io.StringIO(out)), found["rows"], strict=True):
        assert (shown["op"], shown["in_place"], shown["verdict"]) == ("reduce", "true", "unknown")
        assert int(shown["size_bytes"]) == row["size_bytes"]
        assert float(shown["median_s"]) == row["median_s"]
        assert shown["torch"]
    assert "<svg" in plot.read_text(encoding="utf-8")


def test_the_answer_comes_first_and_is_all_that_quiet_shows(command, tmp_path):
    file = tmp_path / "new.txt"
    code, out, err = command("bench", "p2p", "--nonblocking", *SHORT, "--output", str(file))
    assert (code, err) == (0, "")
    assert out.startswith("! Not measurable now: 4 of 4 sizes not steady within ±5.0%: too few")
    assert "p2p · nonblocking · gloo · 2 ranks · float32 · 0 to 1 · async" in out
    assert "\x1b" not in file.read_text(encoding="utf-8")
    code, brief, err = command("bench", "barrier", *SHORT[:4], "--no-limits", "-q")
    assert (code, err) == (0, "")
    assert len(brief.splitlines()) <= 3


def test_what_a_backend_can_not_do_stands_among_the_others(command):
    code, out, _ = command("bench", "all-reduce", "broadcast", "--dtype", "bool", *SHORT)
    assert code == 0
    assert "Not measured: gloo can't do all-reduce" in out
    assert "broadcast · gloo" in out


@pytest.mark.parametrize("name", ["all_reduce", "scatter", "p2p", "barrier"])
def test_the_command_line_that_measures_a_row_again_runs(name, command):
    spec = series(name)
    if name != "p2p":
        spec = series(name, world_size=4, groups=((0, 2), (1, 3)))
    size = spec.sizes_bytes[-1]
    row = make_row([[1.0]], 0.05, size_bytes=size, elements=size // 4, busbw_factor=1.0)
    words = shlex.split(again(spec, row))[1:]
    code, out, err = command(*words, *SHORT[:4], "--no-limits", "--format", "json")
    assert (code, err) == (0, ""), out
    found = decode(BenchReport, json.loads(out)).series[0]
    assert found.spec.at(size) == spec.at(size) or found.spec.in_place != spec.in_place
    assert [row.size_bytes for row in found.rows] == [size]


# ------------------------------------------------------------------------------------ early ends


def under_way(run) -> None:
    """Wait until the third world has begun: what the second has timed is known by then."""
    seen: set[int] = set()

    def begun() -> bool:
        seen.update(children(run.process.pid))
        return len(seen) >= 6

    assert wait_until(begun, PATIENCE)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_signal_keeps_what_was_measured_and_writes_it(number, status, tmp_path: Path):
    file, temporary = tmp_path / "cut.json", tmp_path / "tmp"
    temporary.mkdir()
    with commanded([*LONG, "--format", "json", "--output", str(file)], temporary) as run:
        under_way(run)
        os.kill(run.process.pid, number)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (status, "")
    found = json.loads(out)
    assert (found["ok"], found["interrupted"]) == (False, True)
    assert [row["size_bytes"] for row in found["series"][0]["rows"]] == [8, 32]
    assert json.loads(file.read_text(encoding="utf-8")) == found


def test_a_rank_that_dies_in_the_middle_keeps_the_finished_rows(tmp_path: Path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with commanded([*LONG, "--format", "json"], temporary) as run:
        under_way(run)
        os.kill(run.ranks(2)[1], signal.SIGKILL)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert any("SIGKILL" in error["what"] for error in found["errors"])
    rows = found["series"][0]["rows"]
    assert [row["size_bytes"] for row in rows] == [8, 32]
    assert all(row["iterations"] >= 1000 for row in rows)
