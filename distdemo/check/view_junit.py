"""A check as JUnit XML, the form that GitHub's reporters, GitLab and Jenkins read.

There is no standard; this keeps to what all of them take:

- Jenkins: the schema junit-10.xsd of its xunit plugin. Times have three decimals.
- GitLab: a case is known by ``classname`` and ``name``, which must be unique together, and of a
  failure only the text is shown, not its ``message``: the text holds everything.
  https://docs.gitlab.com/ci/testing/unit_test_reports
- Readers of GitHub show ``message`` as the headline and the text below it.

A case that did not run is an ``error``: a ``skipped`` one would pass for green.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from distdemo.check.records import CaseResult, CheckReport
from distdemo.check.view_grid import why_none

# What XML 1.0 has no way to write (section 2.2, Char), and the colours of terminals.
_FORBIDDEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def junit_xml(report: CheckReport) -> str:
    """The document as text, to be written as UTF-8. A suite to each op."""
    cases = [*report.results, *_nothing_ran(report)]
    root = ET.Element("testsuites", name="distdemo check", time=_time(report.seconds))
    root.attrib |= _counts(cases)
    for op, own in groupby(sorted(cases, key=_op), key=_op):
        _suite(root, op, list(own), report)
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _op(case: CaseResult) -> str:
    return case.op


def _nothing_ran(report: CheckReport) -> Iterable[CaseResult]:
    """A case that says so, where there is no other sign that the check is no success."""
    if report.ok or report.count("failed") or report.count("not run"):
        return ()
    name = "at least one case runs"
    return (CaseResult(name, "check", "any", "none", 0, "not run", why=why_none(report)),)


def _suite(root: ET.Element, op: str, cases: Sequence[CaseResult], report: CheckReport) -> None:
    time = _time(sum(case.seconds for case in cases))
    suite = _child(root, "testsuite", name=op, time=time, **_counts(cases))
    skipped = sum(case.status == "not supported" for case in cases)
    suite.set("skipped", str(skipped))
    properties = _child(suite, "properties")
    for name, value in _properties(report).items():
        _child(properties, "property", name=name, value=value)
    for case in cases:
        _case(suite, case)


def _properties(report: CheckReport) -> dict[str, str]:
    """Where and on what it ran."""
    own = {
        "backend": report.backend,
        "device": report.device,
        "scope": report.scope,
        "seed": str(report.seed),
    }
    return own | {f"version.{name}": version for name, version in report.versions.items()}


def _case(suite: ET.Element, case: CaseResult) -> None:
    name = f"distdemo.check.{case.op}.{case.form}"
    element = _child(suite, "testcase", classname=name, name=case.id, time=_time(case.seconds))
    if case.status == "failed":
        message = case.why or "failed"
        _child(element, "failure", _text(message, case), message=message, type="failed")
    elif case.status == "not run":
        message = f"not run: {case.why or 'no reason was given'}"
        _child(element, "error", _text(message, case), message=message, type="not run")
    elif case.status == "not supported":
        _child(element, "skipped", message=case.why or "not supported")


def _text(message: str, case: CaseResult) -> str:
    """All that is known: some readers show nothing else."""
    command = [f"Run it alone: {case.command}"] if case.command else []
    return "\n".join([message, *command, *case.details])


def _counts(cases: Sequence[CaseResult]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.status == "failed" for case in cases)),
        "errors": str(sum(case.status == "not run" for case in cases)),
    }


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _child(parent: ET.Element, tag: str, text: str = "", /, **attributes: str) -> ET.Element:
    """An element with nothing in it that XML can't hold."""
    clean = {name: _FORBIDDEN.sub("", value) for name, value in attributes.items()}
    child = ET.SubElement(parent, tag, clean)
    child.text = _FORBIDDEN.sub("", text) or None
    return child
