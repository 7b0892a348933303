from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo.check.ci import junit_xml
from distdemo.check.records import CaseResult, CheckReport, Status


@cache
def schema() -> Any:
    """Return the schema of Jenkins' xunit plugin, the strictest reader. It includes its licence."""
    xmlschema = pytest.importorskip("xmlschema")  # takes as long to import as all of these tests

    return xmlschema.XMLSchema(Path(__file__).parents[1] / "schemas" / "junit-10.xsd")


STATUSES: tuple[Status, ...] = get_args(Status)

NASTY = ["\x00\x1b[31mred\x1b[0m", "]]>", "<a>&\"'", "\ud800\udc00\udcff", "\ufffe\uffff", "a\r\nb"]
TEXTS = st.one_of(st.text(st.characters(), max_size=20), st.sampled_from(NASTY))
TIMES = st.floats(0, 1e5)
CASES = st.builds(
    CaseResult,
    id=TEXTS,
    op=st.one_of(st.sampled_from(["all_gather", "scatter"]), TEXTS),
    form=TEXTS,
    dtype=TEXTS,
    world_size=st.integers(1, 9),
    status=st.sampled_from(STATUSES),
    time_s=TIMES,
    why=TEXTS,
    command=TEXTS,
    details=st.lists(TEXTS, max_size=3).map(tuple),
)
REPORTS = st.builds(
    CheckReport,
    backend=TEXTS,
    device=TEXTS,
    scope=TEXTS,
    seed=st.integers(),
    cases=st.lists(CASES, max_size=6).map(tuple),
    time_s=TIMES,
    strict=st.booleans(),
    worlds=st.integers(0, 9),
    versions=st.dictionaries(TEXTS, TEXTS, max_size=2),
)


def case(number: int, status: Status = "passed", **more: Any) -> CaseResult:
    fields: dict[str, Any] = {
        "id": f"all_gather/single/int32/n3/{number}",
        "op": "all_gather",
        "form": "single",
        "dtype": "int32",
        "world_size": 3,
        "time_s": 0.0124,
        **more,
    }
    return CaseResult(status=status, **fields)


def read(*results: CaseResult) -> ET.Element:
    """Return the parsed report of these cases, validated against the schema."""
    return valid(CheckReport("quick", "gloo", "cpu", 7, results, 1.5, 2, {"torch": "2.13"}))


def valid(report: CheckReport) -> ET.Element:
    data = junit_xml(report).encode("utf-8")
    schema().validate(data.decode())
    return ET.fromstring(data)  # noqa: S314 - our own


def only(root: ET.Element, path: str) -> ET.Element:
    found = root.findall(path)
    assert len(found) == 1
    return found[0]


def test_every_op_is_a_suite_with_properties() -> None:
    assert not schema().is_valid("<testsuites><testsuite name='no counts'/></testsuites>")
    root = read(case(1), case(2, op="scatter"), case(3))
    assert [suite.get("name") for suite in root] == ["all_gather", "scatter"]
    assert [suite.get("tests") for suite in root] == ["2", "1"]
    assert (root.get("time"), root[0].get("time")) == ("1.500", "0.025")
    properties = {p.get("name"): p.get("value") for p in root[0].iter("property")}
    assert properties == {
        "backend": "gloo",
        "device": "cpu",
        "scope": "quick",
        "seed": "7",
        "version.torch": "2.13",
    }
    passed = root[1][1]
    assert passed.attrib == {
        "classname": "distdemo.check.scatter.single",
        "name": "all_gather/single/int32/n3/2",
        "time": "0.012",
    }
    assert list(passed) == []


def test_the_text_of_a_failure_is_complete() -> None:
    bad = case(1, "failed", why="2 wrong", command="distdemo check --only x", details=("a", "b"))
    failure = only(read(bad), ".//failure")
    assert (failure.get("message"), failure.get("type")) == ("2 wrong", "failed")
    assert failure.text == "2 wrong\nRun it alone: distdemo check --only x\na\nb"
    why = "".join(NASTY) + " 雪 \U0001f600\t."
    failure = only(read(case(1, "failed", why=why)), ".//failure")
    shown = "\\x00\\x1b[31mred\\x1b[0m]]><a>&\"'\\ud800\\udc00\\udcffa\\r\nb"
    assert failure.get("message") == f"{shown} 雪 \U0001f600\t."


def test_not_run_is_an_error_and_unsupported_is_skipped() -> None:
    root = read(
        case(1), case(2, "not run", why="the world died"), case(3, "not supported", why="no AVG")
    )
    assert only(root, ".//error").get("message") == "not run: the world died"
    assert root.get("errors") == "1"
    assert only(root, ".//skipped").attrib == {"message": "no AVG"}


def test_known_wrong_is_skipped_or_a_failure_with_strict() -> None:
    known = case(1, "known wrong", why="wrong in torch 2.8")
    root = read(known, case(2))
    assert only(root, ".//skipped").attrib == {"message": "wrong in torch 2.8"}
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    report = CheckReport("quick", "gloo", "cpu", 7, (known, case(2)), 1.5, 2, {}, strict=True)
    assert only(valid(report), ".//failure").get("message") == "wrong in torch 2.8"


@pytest.mark.parametrize("status", [None, "not supported"])
def test_a_check_without_a_run_is_a_failure(status: Status | None) -> None:
    root = read(*[case(1, status)] if status else [])
    assert root.get("errors") == "1"
    assert str(only(root, ".//error").get("message")).startswith("not run: ")


@settings(max_examples=25, deadline=None)
@given(REPORTS)
def test_every_report_is_valid_and_its_counts_add_up(report: CheckReport) -> None:
    root = valid(report)
    tally = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for suite in root:
        assert {key: suite.get(key) for key in tally} == {
            key: str(len(list(suite.iter(tag)))) for key, tag in tally.items()
        }
    for key in ("tests", "failures", "errors"):
        assert int(root.get(key, "")) == sum(int(suite.get(key, "")) for suite in root)
    counts = Counter(result.status for result in report.cases)
    known = counts["known wrong"]
    assert root.get("failures") == str(counts["failed"] + known * report.strict)
    skipped = counts["not supported"] + known * (not report.strict)
    assert len(list(root.iter("skipped"))) == skipped
    assert report.ok == (root.get("failures") == root.get("errors") == "0")
