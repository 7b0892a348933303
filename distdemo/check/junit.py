"""JUnit reports of ``check`` for CI.

JUnit XML isn't standardised. The reports use the common subset of these readers:

- Jenkins: the schema junit-10.xsd of its xunit plugin. Times have three decimals.
- GitLab: ``classname`` and ``name`` together identify a case, and only the text of a failure is
  shown, not its ``message``. So the text is complete.
  https://docs.gitlab.com/ci/testing/unit_test_reports
- Readers for GitHub show ``message`` as the headline and the text below it.

A case that did not run is an ``error``, because a ``skipped`` one would count as success. A case
known to be wrong in this release of torch is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.check.view import verdict
from distdemo.ops.spec import Call
from distdemo.view.foreign import printable

SKIPPED: tuple[Status, ...] = ("known wrong", "unavailable", "not supported")


def junit_xml(report: CheckReport) -> str:
    """Return the XML document, for writing as UTF-8, with one suite per op."""
    cases = list(report.cases)
    if all(case.status in SKIPPED for case in cases):
        # Nothing else would mark this report as unsuccessful.
        name = "at least one case runs"
        cases.append(CaseResult(name, Call("check"), 0, "not run", why=verdict(report)))
    whole = {"name": "distdemo check", "time": f"{report.time_s:.3f}"}
    root = ET.Element("testsuites", {**whole, **_counts(cases)})
    properties = {
        "backend": report.backend,
        "device": report.device,
        "scope": report.scope,
        **{f"version.{name}": version for name, version in report.versions.items()},
    }
    for op, own in groupby(sorted(cases, key=_op_name), key=_op_name):
        mine = list(own)
        suite = _child(
            root,
            "testsuite",
            name=op,
            time=f"{sum(case.time_s for case in mine):.3f}",
            **_counts(mine),
            skipped=str(sum(case.status in SKIPPED for case in mine)),
        )
        listed = _child(suite, "properties")
        for name, value in properties.items():
            _child(listed, "property", name=name, value=value)
        for case in mine:
            _add_case(suite, case, report.command(case))
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _op_name(case: CaseResult) -> str:
    return case.op.op


def _add_case(suite: ET.Element, case: CaseResult, command: str) -> None:
    name = f"distdemo.check.{case.op.op}.{case.form}"
    time = f"{case.time_s:.3f}"
    element = _child(suite, "testcase", classname=name, name=case.id, time=time)
    if case.status in SKIPPED:
        _child(element, "skipped", message=case.why or case.status)
    elif case.status != "passed":
        failed = case.status == "failed"
        message = case.why if failed else f"not run: {case.why}"
        lines = [message, f"Run it alone: {command}", *case.details]
        text = "\n".join(lines)  # some readers show only the text
        tag = "failure" if failed else "error"
        _child(element, tag, text, message=message, type=case.status)


def _counts(cases: Sequence[CaseResult]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.status == "failed" for case in cases)),
        "errors": str(sum(case.status == "not run" for case in cases)),
    }


def _child(parent: ET.Element, tag: str, text: str = "", /, **attributes: str) -> ET.Element:
    """Add an element; make its text printable."""
    clean = {name: printable(value) for name, value in attributes.items()}
    child = ET.SubElement(parent, tag, clean)
    child.text = printable(text) or None
    return child
