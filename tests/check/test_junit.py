"""JUnit reports of ``check``: one in full, and any other against the schema."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest
from check.test_views import MIXED
from golden import matches
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo.check.junit import junit_xml
from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.ops.spec import Call


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
    op=st.builds(Call, st.one_of(st.sampled_from(["all_gather", "scatter"]), TEXTS), dtype=TEXTS),
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


def valid(report: CheckReport) -> ET.Element:
    """Return the parsed report, validated against the schema."""
    data = junit_xml(report).encode("utf-8")
    schema().validate(data.decode())
    return ET.fromstring(data)  # noqa: S314 - our own


def test_the_report_of_every_status() -> None:
    assert not schema().is_valid("<testsuites><testsuite name='no counts'/></testsuites>")
    valid(MIXED)
    matches(Path(__file__).parent / "golden" / "junit.xml", junit_xml(MIXED))


def test_forbidden_characters_are_escaped() -> None:
    bad = replace(MIXED.cases[1], why="".join(NASTY) + " 雪 \U0001f600\t.")
    (failure,) = valid(replace(MIXED, cases=(bad,))).iter("failure")
    shown = "\\x00\\x1b[31mred\\x1b[0m]]><a>&\"'\\ud800\\udc00\\udcff\\ufffe\\uffffa\\r\nb"
    assert failure.get("message") == f"{shown} 雪 \U0001f600\t."


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
    # Without a case that ran there is one error.
    assert report.ok == (root.get("failures") == root.get("errors") == "0")
