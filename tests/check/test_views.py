"""Display of ``check`` and ``backends`` for people and CI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden import drawn, golden, matches

from distdemo.check.ci import LIMIT, github_annotations
from distdemo.check.records import (
    BackendEntry,
    BackendList,
    CaseResult,
    CheckReport,
    Status,
)
from distdemo.check.view import summary, table, verdict
from distdemo.encoding import encode

GOLDEN = Path(__file__).parent / "golden"


def case(number: int, status: Status = "passed", **more: Any) -> CaseResult:
    fields: dict[str, Any] = {
        "id": f"all_reduce/tensor/sum/float32/n2/{number}",
        "op": "all_reduce",
        "form": "tensor",
        "dtype": "float32",
        "world_size": 2,
        "time_s": 0.01 if status in ("passed", "failed") else 0.0,
        "command": "distdemo all-reduce -n 2 --dtype float32 --shape 7 --backend gloo",
    }
    return CaseResult(status=status, **{**fields, **more})


def report(*cases: CaseResult, **more: Any) -> CheckReport:
    return CheckReport("quick", "gloo", "cpu", 3, cases, 1.25, 2, {"torch": "2.13"}, **more)


KNOWN = "Known to be wrong in torch 2.8: gives a wrong result. Fixed in 2.9 (PyTorch issue 1)."
WHY = "Rank 1: 3 of 7 elements are wrong."
MIXED = report(
    case(1),
    case(2, "failed", why=WHY, details=("rank 1, piece 0, index 0: got 1, expected 2",)),
    case(3, "not supported", dtype="int16", why="gloo takes no int16 tensors."),
    *(
        case(n, "known wrong", op="scan", dtype=dtype, reduce_op=name, why=KNOWN)
        for n, (dtype, name) in enumerate([("float32", "max"), ("int8", "max"), ("int8", "min")], 6)
    ),
    case(4, op="barrier", form="plain", dtype="none"),
    case(5, op="gather", form="objects", dtype="object", status="not run", why="An earlier one."),
)
FOUND = BackendList(
    (
        BackendEntry(
            "gloo", "CPU tensors over TCP.", ("cpu",), works=True, tried="all_reduce verified"
        ),
        BackendEntry(
            "nccl",
            "GPUs.",
            ("cuda",),
            missing="No GPU here.",
            get="Buy one.",
            implementation="nccl2",
        ),
        BackendEntry("odd", "Registered.", ("cpu",), works=False, tried="Rank 0 raised an error."),
        BackendEntry("xpu", "Registered.", ("xpu",)),
    )
)


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("check", MIXED),
        ("passed", report(case(1), case(2))),
        ("backends", FOUND),
    ],
)
def test_the_table(name: str, record: Any) -> None:
    golden(GOLDEN / f"{name}.txt", lambda console: table(record, console))
    golden(GOLDEN / f"{name}-quiet.txt", lambda console: summary(record, console))


def test_many_failures_are_truncated() -> None:
    many = report(*(case(number, "failed", why=f"why {number}") for number in range(30)))
    golden(GOLDEN / "many.txt", lambda console: table(many, console))


def test_a_case_that_did_not_run_never_counts_as_passed() -> None:
    for record, ok, start in (
        (report(case(1)), True, "1 case passed."),
        (report(case(1), case(2, "not supported")), True, "1 case passed. 1 not supported."),
        (report(case(1), case(2, "failed")), False, "1 of 2 cases failed."),
        (report(case(1), case(2, "known wrong")), True, "1 case passed. 1 known to be wrong in"),
        (
            report(case(1), case(2, "known wrong"), strict=True),
            False,
            "1 of 2 cases known to be wrong.",
        ),
        (report(case(1, "known wrong")), False, "No case ran: 1 case known to be wrong in this"),
        (report(case(1), case(2, "not run")), False, "1 of 2 cases not run."),
        (report(case(1, "not supported")), False, "No case ran: gloo on cpu supports none"),
        (report(), False, "No case ran: none was selected."),
        (report(case(1), case(2, "not run"), interrupted=True), False, "Interrupted: 1 of 2"),
        (FOUND, False, "gloo works. odd fails."),
        (BackendList(()), False, "No backend is available."),
    ):
        assert record.ok is ok
        assert verdict(record).startswith(start)


def test_the_document_counts_cases_by_status() -> None:
    found = encode(MIXED)
    assert found["counts"] == {
        "total": 8,
        "passed": 2,
        "failed": 1,
        "known_wrong": 3,
        "not_supported": 1,
        "not_run": 1,
    }
    assert found["cases"][1]["why"] == WHY


def test_annotations_name_each_failure() -> None:
    matches(GOLDEN / "annotations.txt", "\n".join(github_annotations(MIXED)) + "\n")
    strict = report(case(1), case(2, "known wrong", why=KNOWN), strict=True)
    (line,) = github_annotations(strict)
    assert line.startswith("::error title=")
    assert KNOWN in line
    assert github_annotations(report(case(1))) == [
        "::notice title=distdemo check%3A gloo on cpu::1 case passed."
    ]


@pytest.mark.parametrize("failures", [1, LIMIT, LIMIT + 1, 200])
def test_annotations_stay_within_the_limit_of_github(failures: int) -> None:
    lines = github_annotations(report(*(case(n, "failed", why="a\n%") for n in range(failures))))
    assert len(lines) == min(failures, LIMIT)
    assert all(line.startswith("::error title=") and "\n" not in line for line in lines)
    assert ("in the log" in lines[-1]) == (failures > LIMIT)


def test_control_characters_are_escaped() -> None:
    bad = report(case(1, "failed", why="a\x1b[2Jb\rc", details=("d\x07e",)))
    assert not set(drawn(lambda console: table(bad, console))) & {"\x1b", "\r", "\x07"}


def test_the_matrix_is_a_list_on_narrow_terminals() -> None:
    matches(GOLDEN / "narrow.txt", drawn(lambda console: table(MIXED, console), 20))
