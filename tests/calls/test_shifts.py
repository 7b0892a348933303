"""Calls that are paired from different lines: the cause is reported, not what it leads to."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from processes import Start

from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import EndNote, note_line
from distdemo.calls.records import Finding, RankCall, SourceLine, TorchPart

PROGRAMS = Path(__file__).with_name("shifted.py")
STRICT = ("--strict", "--sanitize=buffers", "--check-replicas")
PARTS = {
    "F": TorchPart("ddp", "forward"),
    "B": TorchPart("backward"),
    "J": TorchPart("ddp", "join()"),
}
CALLED = (
    "Rank 0 called the DDP module at train.py:9, which no other rank ran; its broadcast was paired "
    "with train.py:7."
)
MADE = (
    "Rank 0 made all_reduce at train.py:9, which no other rank ran; it was paired with train.py:7."
)
SHIFTED = {
    "forward on one rank": (
        "F7 B8 F7 B8 F9 F7 B8",
        "F7 B8 F7 B8 F7 B8",
        CALLED,
    ),
    "forward without gradients, which takes the place of the next": (
        "F7 B8 F9 B8 F9",
        "F7 B8 F7 B8",
        CALLED,
    ),
    "a step on one rank": (
        "F7 B8 F9 B10 F7 B8",
        "F7 B8 F7 B8",
        CALLED,
    ),
    "a call in a branch": (
        "7 9 7 7",
        "7 7 7",
        MADE,
    ),
    "as many calls in a branch as in the loop": (
        "7 8 9 10 7 8",
        "7 8 7 8",
        MADE,
    ),
    "more in a row": (
        "7 8 8 7 8 8 8 7 8 8",
        "7 8 8 7 8 8 7 8 8",
        "Rank 0 made 3 calls in a row at train.py:8, {others} made 2.",
    ),
    "fewer in a row": (
        "7 8 8 7 8 7 8 8",
        "7 8 8 7 8 8 7 8 8",
        "Rank 0 made 1 call in a row at train.py:8, {others} made 2.",
    ),
    "a step that ends early": (
        "7 8 9 7 8 7 8 9",
        "7 8 9 7 8 9 7 8 9",
        "After train.py:8, rank 0 went to train.py:7, {others} went to train.py:9.",
    ),
}
"""Lines of rank 0, lines of the others, and what is said."""
HERE = {
    "forward at the end": (
        "F7 B8 F7 B8 F9",
        "F7 B8 F7 B8",
        "absent",
        "Rank 0 called the DDP module at train.py:9, which no other rank ran. Evaluate",
    ),
    "more in a row at the end": (
        "7 8 8 7 8 8 8",
        "7 8 8 7 8 8",
        "uneven",
        "Rank 0 made 3 calls in a row at train.py:8, {others} made 2. Every rank must make these",
    ),
    "more in a row before another op": (
        "7 8 8 W9 7 8 8 8",
        "7 8 8 W9 7 8 8 W9",
        "call",
        "Rank 0 made 3 calls in a row at train.py:8, {others} made 2. Every rank must make these",
    ),
    "forward against another op": (
        "F7 B8 W9 F10",
        "F7 B8 W9 W9",
        "call",
        "Rank 0 called the DDP module at train.py:10, which no other rank ran. Evaluate",
    ),
}
"""Lines of rank 0, lines of the others, the kind if the first call that differs has an error, and
what is said."""
OTHERWISE = {
    "fewer iterations": ("7 7", "7 7 7", "uneven"),
    "branches": ("7 8 7 8", "9 8 9 8 9", "uneven"),
    "a branch in the first step": ("9 8 7 8 7 8", "7 8 7 8", "uneven"),
    "join": ("F7 B8 F7 B8 J9 W9", "F7 B8 F7 B8 F7 B8", "call"),
}
"""Lines of rank 0 and of the others, and the kind of a finding that no earlier call explains."""


def call(mark: str) -> RankCall:
    """Return the call of a mark, ``W9``: a part of torch, or W for a barrier, and the line."""
    part = PARTS.get(mark[0])
    line = SourceLine("train.py", int(mark.lstrip("FBJW")), part=part, cpp=part is not None)
    if mark[0] == "W":
        return RankCall("barrier", line)
    if part and part != PARTS["B"]:
        return RankCall("broadcast", line, "float32", (4,), 4, "cpu", root=0)
    size = 20 if part else 1
    return RankCall("all_reduce", line, "float32", (size,), size, "cpu", "sum")


def judged(programs: list[str], order: int) -> Judge:
    """Return the judge of ranks that make these calls and return, in some order."""
    judge = Judge(len(programs))
    notes = []
    for program in programs:
        numbers = {mark: number for number, mark in enumerate(sorted({*program.split()}))}
        lines = [f"G 0 0 gloo {list(range(len(programs)))}"]
        lines += [note_line(call(mark), number, 0) for mark, number in numbers.items()]
        for mark in program.split():
            lines += [f"{numbers[mark]}", "a", "r"]
        notes.append([*lines, note_line(EndNote("returned"))])
    ranks = [rank for rank, lines in enumerate(notes) for _ in lines]
    random.Random(order).shuffle(ranks)
    rest = [iter(lines) for lines in notes]
    for rank in ranks:
        judge.feed(rank, f"{next(rest[rank])}\n".encode())
        judge.read()
    return judge


def finding_of(first: str, others: str, size: int) -> Finding:
    """Return the finding on a program in which rank 0 makes other calls, whatever the order."""
    found = []
    for order in range(3):
        judge = judged([first] + [others] * (size - 1), order)
        finding = judge.conclude()
        assert finding is not None
        assert finding.kind != "shift" or judge.warnings() == []
        found.append(finding)
    assert found[1:] == found[:1] * 2
    return found[0]


def names(size: int) -> str:
    """Return the names of all ranks but rank 0."""
    return "rank 1" if size == 2 else f"ranks {', '.join(map(str, range(1, size)))}"


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", SHIFTED)
def test_the_first_call_that_was_not_meant_is_reported(name: str, size: int) -> None:
    first, others, what = SHIFTED[name]
    finding = finding_of(first, others, size)
    assert (finding.kind, finding.ranks) == ("shift", (0,))
    assert finding.what == what.format(others=names(size))
    assert [row.ranks[0] for row in finding.rows[:2]] == [1, 0]
    assert len(finding.rows) > 2
    assert all(row.did.startswith("then ") for row in finding.rows[2:])
    assert "Later: " in finding.before


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", HERE)
def test_a_call_that_is_the_first_to_differ_keeps_its_kind_and_gets_the_advice(
    name: str, size: int
) -> None:
    first, others, kind, what = HERE[name]
    finding = finding_of(first, others, size)
    assert (finding.kind, finding.ranks) == (kind, (0,))
    assert what.format(others=names(size)) in f"{finding.what} {finding.rule}"


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", OTHERWISE)
def test_a_finding_of_another_cause_stays(name: str, size: int) -> None:
    first, others, kind = OTHERWISE[name]
    assert finding_of(first, others, size).kind == kind


def test_the_rank_that_leaves_out_what_all_others_do_is_at_fault() -> None:
    finding = finding_of("7 7 7", "7 9 7 7", 4)
    assert (finding.kind, finding.ranks) == ("shift", (0,))
    assert finding.what == "Rank 0 never made all_reduce at train.py:9, as ranks 1, 2, 3 did."


def test_of_two_ranks_without_a_habit_none_is_at_fault() -> None:
    finding = finding_of("7 8 8 8 7 8 8 8", "7 8 8 7 8 8", 2)
    assert (finding.kind, finding.ranks) == ("shift", ())


def test_a_finding_that_divides_the_ranks_otherwise_has_another_cause() -> None:
    """Rank 0 makes a call of its own, and later rank 3 leaves early."""
    programs = ["9 8 8 8", "8 8 8 8", "8 8 8 8", "8 8 8"]
    finding = judged(programs, 0).conclude()
    assert finding is not None
    assert (finding.kind, finding.ranks) == ("uneven", (3,))


def turns(rank: int, size: int) -> str:
    """Return the lines of a rank if each leads in turn."""
    return " ".join(f"7 {8 if step % size == rank else 9}" for step in range(2 * size))


@pytest.mark.parametrize("size", [2, 4])
def test_calls_that_are_meant_to_match_are_silent(size: int) -> None:
    for programs in (
        [turns(rank, size) for rank in range(size)],
        ["7 8 7 8"] + ["9 8 9 8"] * (size - 1),
        ["F7 B8 F7 B8"] + ["F9 B10 F9 B10"] * (size - 1),
        ["F7 B8 F7 B8 J9 B8"] + ["F7 B8 F7 B8 F7 B8"] * (size - 1),
        ["9 8 7 8"] * (size - 1) + ["7 8 9 8"],
        ["7 7 7 W9"] + ["7 7 8 W9"] * (size - 1),  # the last batch of some ranks is a dummy
        ["7 7 7"] + ["7 7 8"] * (size - 1),
    ):
        judge = judged(programs, 0)
        assert judge.conclude() is None
        assert judge.warnings() == [], programs


def test_a_deadlock_of_calls_on_two_groups_has_an_earlier_cause() -> None:
    """Rank 0 makes a call of its own, and then another one waits for it on a pair."""
    judge = Judge(4)
    lines = [note_line(call("7"), 0, 0), note_line(call("8"), 1, 1), note_line(call("9"), 2, 0)]
    for rank, notes in enumerate(["2 a r 0 a", "0 a r 1 a", "0 a r 1 a r 0 a", "0 a r 1 a r 0 a"]):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        text = "\n".join(["G 0 0 gloo [0, 1, 2, 3]", f"G 1 0 gloo {pair}", *lines, *notes.split()])
        judge.feed(rank, f"{text}\n".encode())
    finding = judge.conclude()
    assert finding is not None
    assert (finding.kind, finding.ranks, finding.what) == ("shift", (0,), MADE)
    assert "Later: deadlock: ranks 0, 1 are waiting for each other." in finding.before


def test_a_call_that_ranks_never_make_has_an_earlier_cause() -> None:
    """The others compute when the world is stopped."""
    judge = Judge(2)
    for rank, notes in enumerate(["0 a r 1 a r 0 a r 0 a", "0 a r 0 a r 0 a r"]):
        lines = ["G 0 0 gloo [0, 1]", note_line(call("7"), 0, 0), note_line(call("9"), 1, 0)]
        judge.feed(rank, "".join(f"{line}\n" for line in (*lines, *notes.split())).encode())
    finding = judge.conclude({0: None, 1: SourceLine("train.py", 20)})
    assert finding is not None
    assert (finding.kind, finding.ranks, finding.what, finding.so_far) == (
        "shift",
        (0,),
        MADE,
        True,
    )
    assert finding.rows[-1].source_line == SourceLine("train.py", 20)


def test_ddp_called_on_one_rank_is_a_warning() -> None:
    judge = judged(["F7 B8 F9 B8"] + ["F7 B8 F7 B8"] * 3, 0)
    assert judge.conclude() is None
    (warning,) = judge.warnings()
    assert (warning.kind, warning.ranks) == ("shift", (0,))
    assert warning.what.startswith("Rank 0 called the DDP module at train.py:9, which no other")


# ---------------------------------------------------------------------------------- on real ranks

FORWARD = "Rank 0 called the DDP module at shifted.py:37 in evaluate, which no other rank ran"
WRONG = [
    ("gloo", 4, "evaluated_in_the_loop", "shift", [0], FORWARD),
    ("mpi", 2, "evaluated_in_the_loop", "shift", [0], FORWARD),
    ("gloo", 2, "evaluated_at_the_end", "absent", [0], FORWARD),
    ("gloo", 4, "trained_once_more", "shift", [1], "Rank 1 called the DDP module at"),
    ("mpi", 4, "reduced_in_a_branch", "shift", [0], "which no other rank ran; it was paired with"),
    ("gloo", 4, "metrics_in_the_middle", "shift", [1], "2 calls in a row"),
    ("mpi", 2, "skipped_by_continue", "shift", [1], "rank 1 went to"),
]
"""Backend, number of ranks, program, kind, ranks at fault and a part of the text."""
RIGHT = [*dict.fromkeys(name for _, _, name, *_ in WRONG), "in_another_order", "led_by_turns"]
RIGHT += ["joined"]


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("backend", "size", "name", "kind", "ranks", "text"), WRONG)
def test_the_cause_is_found_on_real_ranks(
    start: Start, backend: str, size: int, name: str, kind: str, ranks: list[int], text: str
) -> None:
    (finding,) = document_of(start, backend, size, name, "wrong")["findings"]
    assert (finding["kind"], finding["ranks"]) == (kind, ranks), finding
    assert text in f"{finding['what']} {finding['rule']}"


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("backend", "size"), [("gloo", 4), ("mpi", 4), ("gloo", 2), ("mpi", 2)])
def test_the_repaired_programs_have_no_findings(start: Start, backend: str, size: int) -> None:
    document = document_of(start, backend, size, ",".join(RIGHT))
    assert not {"findings", "warnings"} & {*document}, document


def document_of(
    start: Start, backend: str, size: int, names: str, *wrong: str
) -> dict[str, list[Any]]:
    """Run programs on ranks and return the document."""
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    options = ["--backend", backend] if backend == "mpi" else []
    line = ["run", str(PROGRAMS), "-n", str(size), *options, *STRICT, "--format", "json"]
    with start("distdemo", *line, "--", backend, names, *wrong) as run:
        code, out, _ = run.finish()
    document: dict[str, list[Any]] = json.loads(out)
    assert document.get("stopped") is None, out
    assert code == bool(wrong), out
    return document
