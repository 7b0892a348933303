"""Late ranks, and what NCCL would not run, in programs over gloo and MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import document

from distdemo.sanitizer.judge import Judge
from distdemo.sanitizer.notes import call_line
from distdemo.sanitizer.records import Call, SourceLine

HERE = Path(__file__).parent
LATE = HERE / "late_ranks.py"
backends = pytest.mark.parametrize("backend", ["gloo", "mpi"])


def run(backend: str, program: str, *options: str, status: int = 0) -> Any:
    """Run a program on four ranks, and return its document."""
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    return document("run", program, "-n", "4", "--backend", backend, *options, status=status)


@backends
def test_the_rank_that_others_wait_for_is_named_with_its_line(backend: str) -> None:
    found = run(backend, f"{LATE}:blocked", "--calls")["late"]
    (late,) = (each for each in found if each["last"] == 20)
    assert (late["op"], late["rank"], late["calls"]) == ("all_reduce", 2, 20)
    assert late["source_line"].startswith("late_ranks.py:24 in blocked")
    found = run(backend, f"{LATE}:rooted", "--calls")["late"]
    (late,) = (each for each in found if each["rank"] == 2)
    assert (late["op"], late["last"], late["calls"]) == ("broadcast", 10, 20)
    assert "late" not in run(backend, f"{LATE}:blocked")


def timed(rank: int, definitions: str, notes: str) -> bytes:
    """Return notes with times: ``5 0`` is call 0 at 5 µs."""
    lines = [line.split(" ", 1) for line in notes.split("\n")]
    return (definitions + "".join(f"t{1000 + int(at)} {rest}\n" for at, rest in lines)).encode()


def test_waits_are_counted_from_the_notes() -> None:
    line = SourceLine("train.py", 7)
    calls = (
        Call("all_reduce", line, "float32", (8,), 8, "cpu", "sum"),
        Call("all_reduce", line, "float32", (8,), 8, "cpu", "sum", sync=False),
        Call("broadcast", line, "float32", (8,), 8, "cpu", root=0),
    )
    lines = [call_line(number, 0, call) for number, call in enumerate(calls)]
    definitions = "".join(f"{each}\n" for each in ["G 0 0 gloo [0, 1]", *lines])
    judge = Judge(2)
    # Rank 1 is 30 µs late, then 10 µs of which rank 0 waits for 4, and its root is never late.
    judge.feed(0, timed(0, definitions, "100 0\n135 r\n200 1\n206 w 1\n215 r\n300 2\n301 r"))
    judge.feed(1, timed(1, definitions, "130 0\n135 r\n210 1\n211 w 1\n215 r\n350 2\n351 r"))
    judge.read()
    (one,) = judge.lateness.ranking(str)[:1]
    assert (one.rank, one.last, one.calls) == (1, 2, 2)
    assert (round(one.total_s * 1e6), round(one.median_s * 1e6)) == (34, 17)
    assert len(judge.lateness.ranking(str)) == 1
