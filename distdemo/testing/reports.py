"""Merge the reports of all ranks into the result of one test, root cause first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import (
    ExceptionChainRepr,
    ReprEntryNative,
    ReprFileLocation,
    ReprTraceback,
)

from distdemo.calls.records import SourceLine
from distdemo.calls.text import calls_text, finding_text
from distdemo.launcher.records import Raised
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.calls.inspector import Inspector
    from distdemo.calls.records import CallCount, Finding
    from distdemo.launcher.records import Verdict, WorldReport

MAX_CALLS = 40  # lines that are shown
Reports = dict[int, list[pytest.TestReport]]


@dataclass
class TestResult:
    """Result of a test.

    Attributes:
        outcome: ``passed``, ``skipped``, ``expected`` (failed, as xfail says) or ``failed``.
        text: Reason why the test was skipped or expected to fail, or the error's message.
        longrepr: pytest's representation of the failure, or None.
        sections: Captured output of the ranks, as arguments of pytest's ``add_report_section``.
        subtests: One report per subtest.
        warnings: Warnings of the ranks, as arguments of pytest's hook.
        user_properties: Properties that a rank recorded for JUnit.
        remarks: Warnings of the sanitizer, and what it couldn't look at.
    """

    outcome: str = "passed"
    text: str = ""
    longrepr: Any = None
    sections: list[tuple[str, str, str]] = field(default_factory=list)
    subtests: list[pytest.TestReport] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    user_properties: list[tuple[str, object]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class Received:
    """Messages from the ranks of one test.

    Attributes:
        reports: pytest's reports of each rank, serialized.
        warnings: Warnings of all ranks by message and line.
        modules: Modules of torch that a rank had to import, as keys.
    """

    def __init__(self) -> None:
        self.reports: dict[int, list[dict[str, Any]]] = {}
        self.warnings: dict[tuple[object, ...], dict[str, Any]] = {}
        self.modules: dict[str, None] = {}

    def on_message(self, rank: int, message: Any) -> None:
        """Add names of modules, a warning or a report of pytest."""
        if isinstance(message, tuple):
            self.modules.update(dict.fromkeys(message))
        elif warning := message.get("warning_message"):
            self.warnings[str(warning.message), warning.filename, warning.lineno] = message
        else:
            self.reports.setdefault(rank, []).append(message)


def merged(
    item: pytest.Item, world: WorldReport, received: Received, inspector: Inspector | None
) -> TestResult:
    """Return the result of a test that has run on ranks."""
    hook = item.config.hook
    reports: Reports = {
        rank: [hook.pytest_report_from_serializable(config=item.config, data=data) for data in sent]
        for rank, sent in sorted(received.reports.items())
    }
    result = TestResult(
        sections=_sections(reports),
        subtests=_subtests(reports),
        warnings=list(received.warnings.values()),
    )
    findings: Sequence[Finding] = ()
    if inspector is not None:
        world, findings = inspector.conclude(world)
        missing = [] if findings else inspector.missing()
        findings = findings or inspector.warnings()
        result.remarks = [finding_text(finding) for finding in inspector.warnings()]
        result.remarks += missing
    if world.verdict is not None:
        _fail(result, item, world, reports, findings)
        if inspector is not None and item.config.option.ranks_calls and result.longrepr is not None:
            result.longrepr.addsection("calls of all ranks", _calls(inspector.judge.calls()))
        return result
    skips = [
        report
        for sent in reports.values()
        for report in sent
        if report.skipped and not hasattr(report, "context")
    ]
    if len(skips) == world.world.world_size:
        result.outcome = "skipped"
        result.text = skips[0].longrepr[2].removeprefix("Skipped: ")  # type: ignore[index]  # of a skip
    result.user_properties = reports[0][-1].user_properties
    return result


def passed_unexpectedly(report: pytest.TestReport) -> bool:
    """Return True if the test passed on this rank, although ``xfail(strict=True)`` marks it."""
    return report.failed and str(report.longrepr).startswith("[XPASS(strict)]")


def _sections(reports: Reports) -> list[tuple[str, str, str]]:
    """Return the ranks' output; equal output is shown once."""
    ranks_by_section: dict[tuple[str, str], list[int]] = {}
    for rank, sent in reports.items():
        for section in dict.fromkeys(section for report in sent for section in report.sections):
            ranks_by_section.setdefault(section, []).append(rank)
    sections = []
    for (title, text), ranks in ranks_by_section.items():
        stream, _, when = title.removeprefix("Captured ").partition(" ")
        sections.append((f"{when}, {ranks_of(ranks).lower()}", stream, text))
    return sections


def _subtests(reports: Reports) -> list[pytest.TestReport]:
    """Return one report per subtest: of a rank on which it failed, else of any rank."""
    chosen: dict[str, pytest.TestReport] = {}
    for sent in reports.values():
        for report in sent:
            name = str(getattr(report, "context", ""))
            if name and (name not in chosen or (report.failed and chosen[name].passed)):
                chosen[name] = report
    return list(chosen.values())


def _calls(calls: Sequence[CallCount]) -> str:
    """Return the calls of all ranks; a caller that they share is the test, and left out."""
    lines = [call.source_line or SourceLine() for call in calls]
    if len({line.callers for line in lines}) == 1:
        pairs = zip(calls, lines, strict=True)
        calls = [replace(call, source_line=replace(line, callers=())) for call, line in pairs]
    text = calls_text(calls[:MAX_CALLS])
    more = len(calls) - MAX_CALLS
    return text + (f"\n  and {plural(more, 'other call')}" if more > 0 else "")


# ----------------------------------------------------------------------------------- the failure


def _fail(
    result: TestResult,
    item: pytest.Item,
    world: WorldReport,
    reports: Reports,
    findings: Sequence[Finding],
) -> None:
    """Set the failure of the ranks that caused the end of the test, or of the world."""
    failures = {
        rank: report for rank, sent in reports.items() for report in sent if _is_failure(report)
    }
    causes = [
        outcome.rank
        for outcome in world.outcomes
        if isinstance(outcome, Raised) and not outcome.consequence and outcome.rank in failures
    ]
    result.outcome = "failed"
    if not causes:
        assert world.verdict is not None  # the test failed
        result.text, result.longrepr = _verdict(item, world.verdict)
        return
    result.sections = _sections({rank: reports[rank] for rank in causes})
    causes.sort(key=lambda rank: failures[rank].skipped)  # failures that xfail doesn't expect first
    cause = failures[causes[0]]
    if failed_subtests := sum(report.failed for report in result.subtests):
        result.text = f"contains {plural(failed_subtests, 'failed subtest')}"
        return
    if cause.skipped:
        result.outcome = "expected"
        result.text = cause.wasxfail
        return
    result.text, result.longrepr = _crash(cause), cause.longrepr
    lost = [
        rank
        for rank in range(world.world.world_size)
        if rank not in causes and (rank in failures or not _is_complete(reports.get(rank, [])))
    ]
    head = f"{ranks_of(causes)} failed."
    if lost:
        them = "them" if len(causes) > 1 else "it"
        head += f" {ranks_of(lost)} waited for {them} and lost the connection."
    if not isinstance(result.longrepr, ExceptionChainRepr):
        result.longrepr = _native(item, f"{cause.longreprtext}\n{head}")
        return
    heading = ReprTraceback([ReprEntryNative([head + "\n"])], None, "native")
    result.longrepr.chain = [(heading, None, None), *result.longrepr.chain]
    others: dict[str, list[int]] = {}
    for rank in causes:
        others.setdefault(_line(item, failures[rank]), []).append(rank)
    for line, ranks in list(others.items())[1:]:
        result.longrepr.addsection(ranks_of(sorted(ranks)), line)
    for finding in findings:
        if finding.kind in ("argument", "shift") or not {*finding.ranks} <= {*causes}:
            result.longrepr.addsection("finding", finding_text(finding))


def _is_failure(report: pytest.TestReport) -> bool:
    """Return True if the report is a failure, expected or not."""
    if passed_unexpectedly(report):
        return False
    return report.failed or (report.skipped and hasattr(report, "wasxfail"))


def _is_complete(sent: list[pytest.TestReport]) -> bool:
    """Return True if a rank has reached the end of its test."""
    return bool(sent) and sent[-1].when == "teardown"


def _crash(report: pytest.TestReport) -> str:
    """Return the message of an exception."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return report.longreprtext if crash is None else str(crash.message)


def _line(item: pytest.Item, report: pytest.TestReport) -> str:
    """Return an exception's place and the first line of its message."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return report.longreprtext
    path = os.path.relpath(crash.path, item.config.invocation_params.dir)
    return f"{path}:{crash.lineno}: {crash.message.splitlines()[0]}"


def _verdict(item: pytest.Item, verdict: Verdict) -> tuple[str, ExceptionChainRepr]:
    """Return message and report of a finding, a dead rank or a timeout."""
    text = "\n".join(part for part in (verdict.what, verdict.why, verdict.hint) if part)
    longrepr = _native(item, text)
    if verdict.traceback:  # of a plugin
        longrepr.addsection("traceback", verdict.traceback)
    return verdict.what, longrepr


def _native(item: pytest.Item, text: str) -> ExceptionChainRepr:
    """Return pytest's report of a failure without an exception."""
    path, line, _ = item.location
    crash = ReprFileLocation(path, (line or 0) + 1, text.splitlines()[0])
    trace = ReprTraceback([ReprEntryNative([text + "\n"])], None, "native")
    return ExceptionChainRepr([(trace, crash, None)])
