from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from distdemo.demo.reports import CaseResult, CheckReport, Status

from distdemo.check.view_document import check_document
from distdemo.view.document import SCHEMA_VERSION, dumps

STATUSES: tuple[Status, ...] = ("passed", "failed", "not supported", "not run")
COMBINATIONS = [each for size in range(4) for each in product(STATUSES, repeat=size)]


def case(number: int, status: Status) -> CaseResult:
    return CaseResult(
        id=f"all_gather/single/int32/n3/{number}",
        op="all_gather",
        form="single",
        dtype="int32",
        world_size=3,
        status=status,
        seconds=0.25,
        why="the world died",
        command=f"distdemo check --only all_gather/single/int32/n3/{number}",
        details=("rank 0: returned", "rank 1: killed by signal 9"),
    )


def document(*statuses: Status, **more: Any) -> Any:
    """The document of such cases as a reader gets it."""
    results = tuple(case(number, status) for number, status in enumerate(statuses))
    report = CheckReport("gloo", "cpu", "quick", 7, results, 12.5, 6, {"torch": "2.13"}, **more)
    return json.loads(dumps(check_document(report)))


def test_it_says_what_was_checked_and_how_it_went() -> None:
    made = document("passed", "passed", "failed", "not supported", "not run", interrupted=True)
    assert list(made)[:3] == ["schema_version", "command", "ok"]
    assert made["schema_version"] == SCHEMA_VERSION
    assert made["command"] == "check"
    assert made["ok"] is False
    assert (made["backend"], made["device"], made["scope"]) == ("gloo", "cpu", "quick")
    assert (made["seed"], made["seconds"], made["worlds"]) == (7, 12.5, 6)
    assert made["interrupted"] is True
    assert made["versions"] == {"torch": "2.13"}
    counts = {"total": 5, "passed": 2, "failed": 1, "not_supported": 1, "not_run": 1}
    assert made["counts"] == counts


def test_every_field_of_every_case_is_there() -> None:
    cases = document("passed", "failed")["cases"]
    assert [each["status"] for each in cases] == ["passed", "failed"]
    assert set(cases[0]) == set(CaseResult.__slots__)
    assert cases[1]["details"] == ["rank 0: returned", "rank 1: killed by signal 9"]


def test_a_failed_case_is_an_error_whose_hint_is_its_command() -> None:
    errors = document("passed", "failed", "not supported")["errors"]
    assert errors == [
        {
            "what": "all_gather/single/int32/n3/1 failed.",
            "why": "the world died",
            "hint": "distdemo check --only all_gather/single/int32/n3/1",
            "case": "all_gather/single/int32/n3/1",
            "details": ["rank 0: returned", "rank 1: killed by signal 9"],
        }
    ]


def test_cases_that_did_not_run_for_one_reason_are_one_error() -> None:
    errors = document("passed", "not run", "not run")["errors"]
    assert errors == [{"what": "2 cases were not run.", "why": "the world died", "hint": ""}]


def test_a_check_in_which_nothing_ran_has_an_error() -> None:
    assert document()["errors"] == [
        {"what": "No case ran: none was selected.", "why": "none was selected", "hint": ""}
    ]


@pytest.mark.parametrize("statuses", COMBINATIONS, ids=lambda each: "+".join(each) or "empty")
def test_it_is_ok_exactly_where_it_has_no_errors(statuses: tuple[Status, ...]) -> None:
    made = document(*statuses)
    assert made["ok"] is (not made["errors"])
    assert made["counts"].pop("total") == sum(made["counts"].values()) == len(made["cases"])
