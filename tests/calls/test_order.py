"""Late ranks, and what NCCL would not run, in programs over gloo and MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import Start

from distdemo.calls.match.judge import Judge
from distdemo.calls.match.rules import lacking_in_nccl
from distdemo.calls.notes import call_line
from distdemo.calls.record.hooks import MAX_DELAY_S, MAX_TOTAL_S, delays
from distdemo.calls.records import RankCall, SourceLine

HERE = Path(__file__).parent
LATE = HERE / "late_ranks.py"
EXAMPLES = HERE.parents[1] / "examples/order"
backends = pytest.mark.parametrize("backend", ["gloo", "mpi"])


def run(start: Start, backend: str, program: str, *options: str, status: int = 0) -> Any:
    """Run a program on four ranks, and return its document."""
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    line = ["run", program, "-n", "4", "--backend", backend, *options, "--format", "json"]
    return start("distdemo", *line).document(status)


@pytest.mark.processes
@backends
def test_the_rank_that_others_wait_for_is_named_with_its_line(start: Start, backend: str) -> None:
    found = run(start, backend, f"{LATE}:blocked", "--calls")["late"]
    (late,) = (each for each in found if each["last"] == 20)
    assert (late["op"], late["rank"], late["calls"]) == ("all_reduce", 2, 20)
    assert late["source_line"].startswith("late_ranks.py:24 in blocked")
    found = run(start, backend, f"{LATE}:rooted", "--calls")["late"]
    (late,) = (each for each in found if each["rank"] == 2)
    assert (late["op"], late["last"], late["calls"]) == ("broadcast", 10, 20)
    assert "late" not in run(start, backend, f"{LATE}:blocked")


def lines(finding: Any) -> set[str]:
    return {row["source_line"].partition(" ")[0] for row in finding["rows"]}


@pytest.mark.processes
@backends
def test_calls_on_groups_in_different_orders_are_a_warning(start: Start, backend: str) -> None:
    (found,) = run(start, backend, f"{EXAMPLES}/groups.py:faulty")["warnings"]
    assert (found["kind"], found["ranks"], len(found["rows"])) == ("order", [0, 1], 4)
    assert lines(found) == {"groups.py:7"}
    assert "may deadlock with NCCL" in found["what"]
    assert "warnings" not in run(start, backend, f"{EXAMPLES}/groups.py:right")


@pytest.mark.processes
@backends
def test_sends_that_nccl_would_not_pair_are_a_warning_by_its_rules(
    start: Start, backend: str
) -> None:
    program = f"{EXAMPLES}/peers.py"
    found = run(start, backend, f"{program}:faulty", "--rules", "nccl")["warnings"]
    assert {each["kind"] for each in found} == {"order"}
    assert lines(found[0]) == {"peers.py:7", "peers.py:8"}
    assert "warnings" not in run(start, backend, f"{program}:right", "--rules", "nccl")
    assert "warnings" not in run(start, backend, f"{program}:faulty")


@pytest.mark.processes
@backends
def test_what_nccl_lacks_is_refused_by_its_rules(start: Start, backend: str) -> None:
    program = f"{EXAMPLES}/tags.py"
    (found,) = run(start, backend, f"{program}:faulty", "--rules", "nccl", status=1)["findings"]
    assert (found["kind"], lines(found) <= {"tags.py:10", "tags.py:14", "tags.py:15"}) == (
        "nccl",
        True,
    )
    assert "which NCCL ignores" in found["what"]
    run(start, backend, f"{program}:right", "--rules", "nccl")
    run(start, backend, f"{program}:faulty")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"dtype": "int16"}, "passes int16, which NCCL doesn't support."),
        ({"dtype": "int32", "reduce_op": "band"}, "passes BAND, which NCCL doesn't support."),
        ({"op": "monitored_barrier"}, "isn't available with NCCL."),
        ({"op": "recv", "peer": -1}, "isn't available with NCCL."),
        ({"op": "recv", "peer": 0}, ""),
        ({"op": "send", "peer": 0, "tag": 3}, "has tag 3, which NCCL ignores."),
        ({"dtype": "complex64"}, ""),
    ],
)
def test_rules_of_nccl(call: dict[str, Any], why: str) -> None:
    found = lacking_in_nccl(RankCall(**{"op": "all_reduce", "source_line": SourceLine(), **call}))
    assert found.endswith(why)
    assert bool(found) == bool(why)


def warned(notes: list[list[str]], *calls: str) -> list[tuple[int, ...]]:
    """Return the ranks in each warning, in every order in which ranks' notes can be read.

    Args:
        notes: Notes of each rank, after its groups.
        calls: Members of the group of each call.
    """
    found = []
    for order in (range(len(notes)), range(len(notes) - 1, -1, -1)):
        judge = Judge(len(notes))
        for rank in order:
            groups = [f"G {number} {number} gloo {each}" for number, each in enumerate(calls)]
            defined = [
                call_line(
                    number, number, RankCall("all_reduce", SourceLine("a.py", number), sync=False)
                )
                for number in range(len(calls))
            ]
            judge.feed(
                rank, "".join(f"{each}\n" for each in (*groups, *defined, *notes[rank])).encode()
            )
            judge.read()
        found.append([each.ranks for each in judge.order.warnings()])
    assert found[0] == found[1]
    return found[0]


def test_only_calls_of_one_thread_without_a_common_order_are_a_warning() -> None:
    both = "[0, 1]"
    assert warned([["0", "1"], ["1", "0"]], both, both) == [(0, 1)]
    assert warned([["0", "1"] * 5, ["1", "0"] * 5], both, both) == [(0, 1)]  # once
    assert warned([["0", "1", "w 1", "w 0"], ["0", "1", "w 0"]], both, both) == []
    assert warned([["0", "@1 1"], ["@1 1", "0"]], both, both) == []
    assert warned([["0", "u", "1", "0"], ["1", "0"]], both, both) == []  # torch rejected it
    triangle = ["[0, 1]", "[1, 2]", "[0, 2]"]
    assert warned([["0", "2"], ["1", "0"], ["2", "1"]], *triangle) == [(0, 1, 2)]
    assert warned([["0", "2"], ["0", "1"], ["1", "2"]], *triangle) == []


def test_delays_are_bounded_and_follow_from_seed_and_rank() -> None:
    assert delays(7, 1) == delays(7, 1)
    assert len({tuple(delays(seed, rank)) for seed in range(3) for rank in range(3)}) == 9
    assert sum(delays(7, 1)) <= MAX_TOTAL_S
    assert 0 <= min(delays(7, 1)) < max(delays(7, 1)) <= MAX_DELAY_S


@pytest.mark.processes
@backends
def test_calls_are_delayed(start: Start, backend: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(TIMED, encoding="utf-8")
    found = run(start, backend, f"{file}:work", "--shake", "7")
    assert found["shake"] == 7
    for rank, each in enumerate(found["ranks"]):
        expected = delays(7, rank)[:10]
        assert all(s >= delay for s, delay in zip(each["returned"], expected, strict=True))


TIMED = """
import time
import torch
import torch.distributed as dist


def seconds():
    before = time.monotonic()
    dist.all_reduce(torch.ones(4))
    return time.monotonic() - before


def work():
    return [seconds() for _ in range(10)]
"""


def timed(rank: int, definitions: str, notes: str) -> bytes:
    """Return notes with times: ``5 0`` is call 0 at 5 µs."""
    lines = [line.split(" ", 1) for line in notes.split("\n")]
    return (definitions + "".join(f"t{1000 + int(at)} {rest}\n" for at, rest in lines)).encode()


def test_waits_are_counted_from_the_notes() -> None:
    line = SourceLine("train.py", 7)
    calls = (
        RankCall("all_reduce", line, "float32", (8,), 8, "cpu", "sum"),
        RankCall("all_reduce", line, "float32", (8,), 8, "cpu", "sum", sync=False),
        RankCall("broadcast", line, "float32", (8,), 8, "cpu", root=0),
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
