"""Late ranks, and what NCCL would not run, in programs over gloo and MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import Start

from distdemo.calls.match.judge import Judge
from distdemo.calls.match.rules import lacking_in_nccl
from distdemo.calls.notes import note_line
from distdemo.calls.record.hooks import delays
from distdemo.calls.records import RankCall, SourceLine

HERE = Path(__file__).parent
LATE = HERE / "late_ranks.py"
EXAMPLES = HERE.parents[1] / "examples/order"


def run(start: Start, program: str, *options: str, status: int = 0) -> Any:
    """Run a program on four ranks, and return its document."""
    line = ["run", program, "-n", "4", *options, "--format", "json"]
    return start("distdemo", *line).document(status)


@pytest.mark.processes
def test_the_rank_that_others_wait_for_is_named_with_its_line(start: Start) -> None:
    ranking = run(start, f"{LATE}:blocked_and_rooted", "--calls")["late"]
    late = {line["op"]: line for line in ranking if line["rank"] == 2}
    assert {op: (line["last"], line["calls"]) for op, line in late.items()} == {
        "all_reduce": (20, 20),
        "broadcast": (10, 20),
    }
    assert late["all_reduce"]["source_line"].startswith("late_ranks.py:24 in blocked")


RULES = ("--rules", "nccl")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "options", "kind", "lines"),
    [
        ("groups", (), "order", {"groups.py:7"}),
        ("peers", RULES, "order", {"peers.py:7", "peers.py:8"}),
        ("tags", RULES, "nccl", {"tags.py:10", "tags.py:14", "tags.py:15"}),
    ],
)
def test_what_nccl_would_not_run_is_reported(
    start: Start, name: str, options: tuple[str, ...], kind: str, lines: set[str]
) -> None:
    program = f"{EXAMPLES}/{name}.py"
    wrong = run(start, f"{program}:faulty", *options, status=int(kind == "nccl"))
    findings = wrong.get("findings") or wrong["warnings"]
    assert {finding["kind"] for finding in findings} == {kind}
    assert {row["source_line"].partition(" ")[0] for row in findings[0]["rows"]} <= lines
    right = run(start, f"{program}:right", *options)
    assert not {"findings", "warnings"} & {*right}, right


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ({"dtype": "int16"}, "passes int16, which NCCL doesn't support"),
        ({"dtype": "int32", "reduce_op": "band"}, "passes BAND, which NCCL doesn't support"),
        ({"op": "monitored_barrier"}, "isn't available with NCCL"),
        ({"op": "recv", "peer": -1}, "isn't available with NCCL"),
        ({"op": "recv", "peer": 0}, ""),
        ({"op": "send", "peer": 0, "tag": 3}, ""),  # right unless another message comes first
        ({"dtype": "complex64"}, ""),
    ],
)
def test_rules_of_nccl(call: dict[str, Any], why: str) -> None:
    found = lacking_in_nccl(RankCall(**{"op": "all_reduce", "source_line": SourceLine(), **call}))
    assert found.endswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("received", "kind"), [((1, 2), None), ((2, 1), "nccl")])
def test_a_tag_is_an_error_if_nccl_would_give_another_message(
    received: tuple[int, int], kind: str | None
) -> None:
    judge = Judge(2)
    judge.matcher.nccl = True
    for rank, (op, tags) in enumerate([("send", (1, 2)), ("recv", received)]):
        notes = ["G 0 0 gloo [0, 1]"]
        for number, tag in enumerate(tags):
            line = SourceLine("a.py", number + 1)
            call = RankCall(op, line, "float32", (4,), 4, "cpu", peer=1 - rank, tag=tag, sync=False)
            notes += [note_line(call, number, 0), str(number), "a", f"w {number}"]
        judge.feed(rank, "".join(f"{note}\n" for note in notes).encode())
    finding = judge.conclude()
    assert (finding and finding.kind) == kind


def warned(notes: list[list[str]], *members: str) -> list[tuple[int, ...]]:
    """Return the ranks in each warning, in every order in which ranks' notes can be read.

    Args:
        notes: Notes of each rank, after its groups.
        members: Members of the group of each call.
    """
    definitions = [f"G {number} {number} gloo {ranks}" for number, ranks in enumerate(members)]
    for number in range(len(members)):
        call = RankCall("all_reduce", SourceLine("a.py", number), sync=False)
        definitions.append(note_line(call, number, number))
    results = []
    for order in (range(len(notes)), range(len(notes) - 1, -1, -1)):
        judge = Judge(len(notes))
        for rank in order:
            lines = "\n".join([*definitions, *notes[rank], ""])
            judge.feed(rank, lines.encode())
            judge.read()
        results.append([own.ranks for own in judge.warnings() if own.kind == "order"])
    assert results[0] == results[1]
    return results[0]


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


@pytest.mark.processes
def test_calls_are_delayed(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(TIMED, encoding="utf-8")
    document = run(start, f"{file}:work", "--shake", "7")
    assert document["shake"] == 7
    for rank, own in enumerate(document["ranks"]):
        pairs = [*zip(own["returned"], delays(7, rank), strict=False)]
        assert all(seconds >= delay for seconds, delay in pairs), pairs


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
    lines = [note_line(call, number, 0) for number, call in enumerate(calls)]
    definitions = "".join(f"{each}\n" for each in ["G 0 0 gloo [0, 1]", *lines])
    judge = Judge(2)
    # Rank 1 is 30 µs late, then 10 µs of which rank 0 waits for 4, and its root is never late.
    judge.feed(0, timed(0, definitions, "100 0\n135 r\n200 1\n206 w 1\n215 r\n300 2\n301 r"))
    judge.feed(1, timed(1, definitions, "130 0\n135 r\n210 1\n211 w 1\n215 r\n350 2\n351 r"))
    judge.read()
    (one,) = judge.lateness.ranking(judge.matcher.shown.line)[:1]
    assert (one.rank, one.last, one.calls) == (1, 2, 2)
    assert (round(one.total_s * 1e6), round(one.median_s * 1e6)) == (34, 17)
    assert len(judge.lateness.ranking(judge.matcher.shown.line)) == 1
