"""The rules on a call's own arguments hold: torch itself rejects the calls or is wrong."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from calls.rule_cases import CASES, SIZE
from mpi.worlds import needs_mpi
from processes import Start

from distdemo.calls.match.rules import check_arguments, remarks
from distdemo.calls.records import RankCall, SourceLine

BACKENDS = ["gloo", pytest.param("mpi", marks=[pytest.mark.mpi, needs_mpi])]
NEEDS_TWO = ("columns on rank 0", "differ", "that is read")
"""Cases whose fault isn't in the call of one rank."""


@pytest.mark.processes
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_torch_does_without_the_sanitizer(start: Start, backend: str) -> None:
    program = [Path(__file__).parent / "rule_cases.py", "--backend", backend, "-n", SIZE]
    line = ["run", *program, "--no-sanitize", "--format", "json", "--", backend]
    with start("distdemo", *map(str, line)) as run:
        code, out, err = run.finish()
    assert (code, err) == (0, ""), out
    outcomes = defaultdict[str, set[str]](set)
    for rank in json.loads(out)["ranks"]:
        for text in rank["output"].splitlines():
            if text.startswith("{"):
                made = json.loads(text)
                outcomes[made["case"]].add(made["outcome"])
    expected = {name: case.outcomes[backend] for name, case in CASES.items()}
    worst = {
        name: min(found, key=["raises", "wrong", "right"].index) for name, found in outcomes.items()
    }
    assert worst == {name: outcome for name, outcome in expected.items() if outcome}


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("name", CASES)
def test_a_call_is_an_error_where_torch_rejects_it_or_is_wrong(name: str, backend: str) -> None:
    case = CASES[name]
    if name.endswith(NEEDS_TWO) or not case.outcomes[backend]:
        return
    call = replace(case.call, strides=()) if backend == "mpi" else case.call  # it copies them
    error = check_arguments(call, 0, SIZE, backend)
    assert (error is None) == (case.outcomes[backend] == "right"), error


def test_shared_memory_is_a_note() -> None:
    plain = RankCall("all_gather", SourceLine(), receive_counts=(4, 4))
    for call in (replace(plain, aliased=True), replace(plain, overlapping=True)):
        assert check_arguments(call, 0, 2, "gloo") is None
        assert [kind for kind, _, _ in remarks(call, 0, 2, "gloo")] == ["buffers"]
    assert [*remarks(plain, 0, 2, "gloo")] == []


@pytest.mark.parametrize(
    ("op", "sizes", "is_error", "is_note"),
    [
        ("all_gather", (1, 2), False, False),
        ("reduce_scatter", (1, 2), False, False),
        ("all_gather", (4, 4, 4), False, True),
        ("reduce_scatter", (4, 4, 4), False, True),
        ("gather", (4, 4, 4), True, False),
        ("gather", (1, 2), True, False),
        ("scatter", (1, 2), True, False),
        ("all_gather", (4,), True, False),
    ],
)
def test_lists_over_nccl(op: str, sizes: tuple[int, ...], is_error: bool, is_note: bool) -> None:
    """The sources are named in `check_arguments` and in the backend."""
    root = 0 if op in ("gather", "scatter") else None
    call = RankCall(op, SourceLine(), root=root, send_counts=sizes, receive_counts=sizes)
    assert (check_arguments(call, 0, 2, "nccl") is not None) == is_error
    assert bool([*remarks(call, 0, 2, "nccl")]) == is_note
