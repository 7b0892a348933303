from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from distdemo.demo.reports import CaseResult, CheckReport, Status

from distdemo.check.view_annotations import LIMIT, github_annotations

STATUSES: tuple[Status, ...] = ("passed", "failed", "not supported", "not run")
COMBINATIONS = [each for size in range(4) for each in product(STATUSES, repeat=size)]


def case(number: int, status: Status, **more: Any) -> CaseResult:
    fields: dict[str, Any] = {"why": "wrong", "command": f"distdemo check --only {number}", **more}
    return CaseResult(f"id/{number}", "all_gather", "single", "int32", 3, status, **fields)


def annotated(*results: CaseResult) -> list[str]:
    return github_annotations(CheckReport("gloo", "cpu", "quick", 7, results, 1.5, 2))


def of(*statuses: Status) -> list[str]:
    return annotated(*(case(number, status) for number, status in enumerate(statuses)))


def test_a_failure_is_an_error_with_its_command() -> None:
    bad = case(1, "failed", why="rank 1 is wrong", details=("got 1", "expected 2"))
    (line,) = annotated(bad, case(2, "passed"))
    assert line == (
        "::error title=distdemo check%3A id/1::rank 1 is wrong%0Agot 1%0Aexpected 2"
        "%0ARun it alone: distdemo check --only 1"
    )


def test_success_is_a_notice_with_the_counts() -> None:
    assert of("passed", "passed", "not supported") == [
        "::notice title=distdemo check%3A gloo on cpu::2 cases passed. 1 not supported."
    ]


def test_what_would_end_a_command_or_a_property_is_escaped() -> None:
    nasty = "100%, a:b::c\r\n%0A"
    bad = CaseResult(nasty, "o", "f", "d", 1, "failed", why=nasty)
    (line,) = annotated(bad)
    assert line == (
        "::error title=distdemo check%3A 100%25%2C a%3Ab%3A%3Ac%0D%0A%250A"
        "::100%25, a:b::c%0D%0A%250A"
    )


def test_a_name_that_is_no_text_can_still_be_printed() -> None:
    assert annotated(case(1, "failed", why="no \udcff"))[0].encode("utf-8")


def test_all_failures_are_told_if_that_many_are_shown() -> None:
    lines = annotated(*(case(n, "failed") for n in range(LIMIT)))
    assert len(lines) == LIMIT
    assert all("id/" in line for line in lines)


def test_of_more_failures_the_last_annotation_counts_the_rest() -> None:
    lines = annotated(*(case(n, "failed") for n in range(LIMIT + 3)), case(50, "passed"))
    assert len(lines) == LIMIT
    assert lines[-1] == (
        "::error title=distdemo check%3A gloo on cpu::"
        "13 of 14 cases failed.%0A4 more failures in the log."
    )


def test_cases_that_did_not_run_are_summed_up_with_their_reasons() -> None:
    results = [case(n, "not run", why="the world died") for n in range(30)]
    lines = annotated(case(50, "passed"), case(51, "failed"), *results)
    assert len(lines) == 2
    assert lines[1].endswith("::1 of 32 cases failed; 30 not run.%0ANot run: the world died")


@pytest.mark.parametrize("statuses", COMBINATIONS, ids=lambda each: "+".join(each) or "empty")
def test_there_is_an_error_exactly_where_the_check_failed(statuses: tuple[Status, ...]) -> None:
    lines = of(*statuses)
    assert all(re.fullmatch(r"::(error|notice) title=[^:,]+::[^\r\n]+", line) for line in lines)
    good = "passed" in statuses and not {"failed", "not run"} & set(statuses)
    assert [line.startswith("::notice") for line in lines] == (
        [True] if good else [False] * len(lines)
    )
    assert lines
