"""Display of ``check`` and ``backends`` for people and CI."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import golden

from distdemo.check.records import (
    BackendEntry,
    BackendList,
    CaseResult,
    CheckReport,
    Status,
)
from distdemo.check.view import backends_view, check_view, verdict
from distdemo.ops.spec import Call
from distdemo.view.blocks import View, quiet

GOLDEN = Path(__file__).parent / "golden"


def case(number: int, status: Status = "passed", **more: Any) -> CaseResult:
    fields: dict[str, Any] = {
        "id": f"all_reduce/tensor/sum/float32/n2/{number}",
        "op": Call("all_reduce", dtype="float32"),
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
    case(
        3, "not supported", op=Call("all_reduce", dtype="int16"), why="gloo takes no int16 tensors."
    ),
    *(
        case(n, "known wrong", op=Call("reduce", dtype=dtype, reduce_op=name), why=KNOWN)
        for n, (dtype, name) in enumerate([("float32", "max"), ("int8", "max"), ("int8", "min")], 6)
    ),
    case(4, op=Call("barrier")),
    case(5, op=Call("gather", objects=True), status="not run", why="An earlier one."),
)
FOUND = BackendList(
    (
        BackendEntry(
            "gloo",
            "CPU tensors over TCP.",
            ("cpu",),
            version="1.0",
            works=True,
            tried="all_reduce verified",
        ),
        BackendEntry(
            "nccl",
            "GPUs.",
            ("cuda",),
            missing="No GPU here.",
            get="Buy one.",
        ),
        BackendEntry("odd", "Registered.", ("cpu",), works=False, tried="Rank 0 raised an error."),
        BackendEntry("xpu", "Registered.", ("xpu",)),
    )
)


@pytest.mark.parametrize(
    ("name", "view", "record"),
    [
        ("check", check_view, MIXED),
        ("passed", check_view, report(case(1), case(2))),
        ("backends", backends_view, FOUND),
    ],
)
def test_the_table(name: str, view: View, record: Any) -> None:
    golden(GOLDEN / f"{name}.txt", partial(view, record))
    golden(GOLDEN / f"{name}-quiet.txt", lambda sign: quiet(view(record, sign)))


def test_many_failures_are_truncated() -> None:
    many = report(*(case(number, "failed", why=f"why {number}") for number in range(30)))
    golden(GOLDEN / "many.txt", partial(check_view, many))


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
        (report(case(1), interrupted=True), False, "Interrupted: 1 case passed."),
    ):
        assert record.ok is ok
        assert verdict(record).startswith(start)
