"""Output of ``check`` for CI: JUnit reports and GitHub annotations.

JUnit XML isn't standardised. The reports use the common subset of these readers:

- Jenkins: the schema junit-10.xsd of its xunit plugin. Times have three decimals.
- GitLab: ``classname`` and ``name`` together identify a case, and only the text of a failure is
  shown, not its ``message``. So the text is complete.
  https://docs.gitlab.com/ci/testing/unit_test_reports
- Readers for GitHub show ``message`` as the headline and the text below it.

A case that did not run is an ``error``, because a ``skipped`` one would count as success. A case
known to be wrong in this release of torch is skipped, or a failure with ``--strict``.

GitHub's annotations: docs.github.com, "Workflow commands for GitHub Actions", and ``command.ts`` of
actions/toolkit for the escapes. GitHub drops more than ten annotations of one kind per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from xml.etree import ElementTree as ET

from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.check.texts import reason_none_ran, verdict
from distdemo.ops.spec import Call
from distdemo.view.foreign import printable
from distdemo.view.format import plural

SKIPPED: tuple[Status, ...] = ("known wrong", "not supported")
LIMIT = 10  # annotations of one kind per step
LINES = 5  # of details per failure; the log and the JUnit report are complete


def junit_xml(report: CheckReport) -> str:
    """Return the XML document, for writing as UTF-8, with one suite per op."""
    # Failures with --strict. Replaced here so that counts and cases agree.
    strict: Status = "failed" if report.strict else "known wrong"
    cases = [
        replace(case, status=strict) if case.status == "known wrong" else case
        for case in report.cases
    ]
    if all(case.status in SKIPPED for case in cases):
        # Nothing else would mark this report as unsuccessful.
        name, why = "at least one case runs", reason_none_ran(report)
        cases.append(CaseResult(name, Call("check"), 0, "not run", why=why))
    whole = {"name": "distdemo check", "time": f"{report.time_s:.3f}"}
    root = ET.Element("testsuites", {**whole, **_counts(cases)})
    properties = {
        "backend": report.backend,
        "device": report.device,
        "scope": report.scope,
        "seed": str(report.seed),
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
            _add_case(suite, case)
    ET.indent(root)
    body = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _op_name(case: CaseResult) -> str:
    return case.op.op


def _add_case(suite: ET.Element, case: CaseResult) -> None:
    name = f"distdemo.check.{case.op.op}.{case.form}"
    time = f"{case.time_s:.3f}"
    element = _child(suite, "testcase", classname=name, name=case.id, time=time)
    if case.status in SKIPPED:
        _child(element, "skipped", message=case.why or case.status)
    elif case.status != "passed":
        failed = case.status == "failed"
        message = case.why or ("failed" if failed else "no reason was given")
        message = message if failed else f"not run: {message}"
        command = [f"Run it alone: {case.command}"] if case.command else []
        text = "\n".join([message, *command, *case.details])  # some readers show only the text
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


def github_annotations(report: CheckReport) -> list[str]:
    """Return one error per failed case, or a notice of success; at most ``LIMIT``.

    The last error is a summary if there is more to report: further failures, cases that did not
    run, or no case at all.
    """
    where = f"distdemo check: {report.backend} on {report.device}"
    if report.ok:
        return [_annotation("notice", where, verdict(report))]
    errors = []
    for case in report.of("failed"):
        lines = [case.why or "failed", *case.details[:LINES]]
        lines += [f"Run it alone: {case.command}"] if case.command else []
        errors.append(_annotation("error", f"distdemo check: {case.id}", "\n".join(lines)))
    not_run = report.of("not run")
    complete = not (not_run or (report.strict and report.of("known wrong")))
    if errors and len(errors) <= LIMIT and complete:
        return errors
    shown = errors[: LIMIT - 1]
    lines = [verdict(report)]
    if len(errors) > len(shown):
        lines.append(f"{plural(len(errors) - len(shown), 'more failure')} in the log.")
    reasons = dict.fromkeys(case.why for case in not_run)
    lines += [f"Not run: {why}" for why in reasons if why][:LINES]
    if report.strict:
        lines += list(dict.fromkeys(case.why for case in report.of("known wrong")))[:LINES]
    return [*shown, _annotation("error", where, "\n".join(lines))]


def _annotation(kind: str, title: str, message: str) -> str:
    """Return a workflow command. Colons and commas in its title are escaped."""

    def escaped(text: str) -> str:  # the percent sign first: the other escapes contain it
        return printable(text).replace("%", "%25").replace("\n", "%0A")

    name = escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{escaped(message)}"
