"""The ``bench`` command: usage errors, views, files, an early end."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path

import pytest
from helpers import PATIENCE, children, wait_until
from processes import Start

from distdemo.bench.records import BenchReport
from distdemo.encoding import decode

pytestmark = pytest.mark.processes
# Worlds of seconds, so that an early end finds some rows measured and some worlds left.
LONG = ["bench", "--sizes", "8,32", "--iters", "30000"]

REFUSED = (
    ("all-reduce links", "bench links takes no operation before it.", "Try distdemo bench links."),
    ("-b 64K -e 1K", "From -b 64 KiB to -e 1 KiB there is no size.", "Try -b 8 -e 64M -f 4."),
    ("-f 1", "--step-factor 1: not a whole number of at least 2.", "Try --step-factor 2."),
    ("-e 1T", "The tensors of 2 ranks need ", "fewer ranks."),
    ("--dtype bool", "gloo can't do all-reduce", "complex128."),
    ("-a ringg", "all-reduce has no algorithm 'ringg'.", "Did you mean --algorithm ring?"),
)


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(("line", "says", "hint"), REFUSED)
def test_usage_errors_are_reported_before_a_rank_starts(command, line, says, hint):
    code, out, err = command("bench", *line.split())
    assert (code, out) == (2, "")
    first, *_, last = err.strip().split("\n")
    assert first.startswith(says)
    assert hint in last


def test_all_formats_and_files_agree_and_can_be_read_back(command, tmp_path):
    document = tmp_path / "new.json"
    files = ["--output", str(document)]
    words = ["reduce,all-gather", "-n", "3", "--root", "1", "--sizes", "1K,3,64", "--iters", "1"]
    code, out, err = command("bench", *words, *files, "--format", "csv")
    assert (code, err) == (0, f"Wrote {document}\n")
    content = json.loads(document.read_text(encoding="utf-8"))
    assert [content[name] for name in ("schema_version", "command", "ok")] == [4, "bench", True]
    report = decode(BenchReport, content)
    # S is one tensor of floats, or three ranks' tensors.
    assert [
        (one.spec.op.op, one.spec.op.in_place, [row.size_bytes for row in one.rows])
        for one in report.series
    ] == [
        ("reduce", True, [4, 64, 1024]),
        ("all_gather", False, [12, 60, 1020]),
        ("all_gather", True, [12, 60, 1020]),
    ]
    rows = [(one.spec.op, row) for one in report.series for row in one.rows]
    for shown, (call, row) in zip(csv.DictReader(io.StringIO(out)), rows, strict=True):
        assert (shown["op"], shown["in_place"]) == (call.op, str(call.in_place).lower())
        assert int(shown["size_bytes"]) == row.size_bytes
        assert float(shown["median_s"]) == row.median_s
        assert (shown["answer"], shown["wrong"]) == (row.answer.value, "0")
        assert (row.iterations, row.wrong, row.checked > 0) == (1, 0, True)
        assert shown["torch"]


def test_a_signal_keeps_and_writes_the_measured_rows(start: Start, tmp_path: Path):
    file, seen = tmp_path / "cut.json", set[int]()

    def third_world_runs() -> bool:
        """Return True once the times of the second world have been received."""
        seen.update(children(run.pid))
        return len(seen) >= 6

    with start("distdemo", *LONG, "--format", "json", "--output", str(file)) as run:
        assert wait_until(third_world_runs, PATIENCE)
        os.kill(run.process.pid, signal.SIGINT)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, err.splitlines()[-1]) == (130, f"Wrote {file}"), "after lines of progress"
    content = json.loads(out)
    assert (content["ok"], content["interrupted"]) == (False, True)
    assert [row["size_bytes"] for row in content["series"][0]["rows"]] == [8, 32]
    assert json.loads(file.read_text(encoding="utf-8")) == content
