"""Display of ``check`` and ``backends`` for people and CI."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import drawn, golden

from distdemo.check.records import (
    BackendEntry,
    BackendList,
    CaseResult,
    CheckReport,
    Status,
)
from distdemo.check.view import backends_view, check_view
from distdemo.ops.spec import Call
from distdemo.view.blocks import Summary, View, quiet
from distdemo.view.console import Signs

GOLDEN = Path(__file__).parent / "golden"


def case(number: int, status: Status = "passed", **more: Any) -> CaseResult:
    fields: dict[str, Any] = {
        "id": f"all_reduce/tensor/sum/float32/n2/{number}",
        "op": Call("all_reduce", dtype="float32"),
        "world_size": 2,
        "time_s": 0.01 if status in ("passed", "failed") else 0.0,
    }
    return CaseResult(status=status, **{**fields, **more})


def report(*cases: CaseResult) -> CheckReport:
    return CheckReport("quick", "gloo", "cpu", cases, 1.25, 2, {"torch": "2.13"})


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


def verdict_of(view: View, record: Any) -> Summary:
    (verdict,) = [block for block in view(record, Signs()) if isinstance(block, Summary)]
    return verdict


def test_a_case_that_did_not_run_never_counts_as_passed() -> None:
    for record, code, strict, mark, start in (
        (report(case(1)), 0, 0, "✓", "1 case passed."),
        (report(case(1), case(2, "not supported")), 0, 0, "✓", "1 case passed. 1 not supported."),
        (report(case(1), case(2, "failed")), 1, 1, "✗", "1 of 2 cases failed."),
        (report(case(1), case(2, "known wrong")), 0, 1, "!", "1 case passed. 1 known to be wrong"),
        (report(case(1), case(2, "unavailable")), 0, 1, "!", "1 case passed. 1 not run for lack"),
        (report(case(1, "known wrong", why=KNOWN)), 1, 1, "!", "No case ran: Known to be wrong in"),
        (report(case(1), case(2, "not run")), 1, 1, "!", "1 of 2 cases not run."),
        (report(), 1, 1, "!", "No case ran: none was selected."),
    ):
        shown = verdict_of(check_view, record)
        assert shown.text.startswith(start)
        assert {True: "✓", False: "✗", None: "!"}[shown.ok] == mark
        assert (not record.ok, not replace(record, strict=True).ok) == (code, strict)


def test_a_backend_that_was_not_tried_does_not_count_as_working() -> None:
    works, _, fails, untried = FOUND.backends
    for entries, ok, text in (
        ((works,), True, "gloo works."),
        ((works, fails, untried), False, "gloo works. odd fails. xpu was not tried."),
        ((works, untried), None, "gloo works. xpu was not tried."),
        ((), None, "No backend is available."),
    ):
        shown = verdict_of(backends_view, BackendList(entries))
        assert (shown.ok, shown.text) == (ok, text)


def test_the_first_line_says_that_a_newer_torch_is_untried():
    newer = replace(report(case(1)), versions={"torch": "2.99.0"})
    first = drawn(lambda sign: check_view(newer, sign)).splitlines()[0]
    assert first.startswith("! torch 2.99.0 is untried")
