"""Merge the reports of all ranks into those of one test, root cause first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import (
    ExceptionChainRepr,
    ReprEntryNative,
    ReprFileLocation,
    ReprTraceback,
)
from _pytest.skipping import evaluate_xfail_marks

from distdemo.calls.match.matching import FROM
from distdemo.calls.text import calls_text, reason
from distdemo.launcher.records import Raised, TimedOut
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.calls.records import CallCount
    from distdemo.testing.records import TaskResult

PHASES = ("setup", "call", "teardown")
MAX_CALLS = 40  # lines that are shown
Reports = dict[int, list[pytest.TestReport]]


def merged(
    item: pytest.Item, result: TaskResult, size: int, detail: str
) -> list[pytest.TestReport]:
    """Return one report per phase for all ranks.

    Args:
        item: Test.
        result: Result of the test.
        size: Number of ranks.
        detail: Value of ``--ranks-report``.
    """
    if result.world is None:
        if result.refused:
            refusal = failure_report(item, "setup", result.refused)
        else:
            line = (item.location[1] or 0) + 1
            place = str(item.path), line, f"Skipped: {result.unavailable}"
            refusal = _report(item, "setup", "skipped", place)
        return [refusal, _passed(item, "teardown")]
    hook = item.config.hook
    reports: Reports = {
        rank: [hook.pytest_report_from_serializable(config=item.config, data=data) for data in sent]
        for rank, sent in sorted(result.reports.items())
    }
    failure = _failure(item, result, reports, size, whole=detail == "all")
    subtests = _subtests(reports, failure)
    if failure in subtests:
        count = sum(report.failed for report in subtests)
        text = f"contains {count} failed subtest{'s' * (count > 1)}"  # as pytest's own
        failure = _report(item, "call", "failed", text)
    merged = []
    for when in PHASES:
        if when == "call":
            merged += subtests
        if failure is not None and failure.when == when:
            merged.append(failure)
        else:
            merged += _phase(item, reports, when, is_needed=failure is not None)
        if when == "setup" and merged[-1:] == [failure]:
            merged.append(_passed(item, "teardown"))
            break
    for report in merged:
        if report.failed and detail == "calls" and isinstance(report.longrepr, ExceptionChainRepr):
            report.longrepr.addsection("calls of all ranks", _calls(result.calls))
    return merged


def _phase(
    item: pytest.Item, reports: Reports, when: str, *, is_needed: bool
) -> list[pytest.TestReport]:
    """Return the report of a phase, apart from the failure that decided the test, if any.

    Args:
        item: Test.
        reports: Reports of all ranks.
        when: Name of the phase.
        is_needed: True if pytest needs the report of a set-up although no rank has sent one.
    """
    of_phase = [
        report
        for sent in reports.values()
        for report in sent
        if report.when == when and not _is_subtest(report)
    ]
    failed = [report for report in of_phase if report.failed]
    if failed:
        return failed[:1]
    if of_phase:  # passed if any rank passed, else skipped
        best = min(of_phase, key=lambda report: (report.skipped, -report.duration))
        best.sections = _sections(reports, {best.when})
        return [best]
    return [_passed(item, when)] if when == "teardown" or (is_needed and when == "setup") else []


def _calls(calls: Sequence[CallCount]) -> str:
    """Return the calls of all ranks; a caller that they share is the test, and left out."""
    callers = {call.source_line.partition(FROM)[2] for call in calls}
    text = calls_text(calls[:MAX_CALLS])
    if len(callers) == 1:
        text = text.replace(f"{FROM}{callers.pop()}", "")
    more = len(calls) - MAX_CALLS
    return text + (f"\n  and {plural(more, 'other call')}" if more > 0 else "")


def _is_subtest(report: pytest.TestReport) -> bool:
    return hasattr(report, "context")


def _subtests(reports: Reports, failure: pytest.TestReport | None) -> list[pytest.TestReport]:
    """Return one report per subtest: the failure, else of a rank that failed, else of any rank."""
    chosen: dict[str, pytest.TestReport] = {}
    for sent in reports.values():
        for report in filter(_is_subtest, sent):
            name = str(vars(report)["context"])
            is_worse = name not in chosen or (report.failed and chosen[name].passed)
            if report is failure or is_worse:
                chosen[name] = report
    return list(chosen.values())


# ----------------------------------------------------------------------------------- the failure


def _failure(
    item: pytest.Item, result: TaskResult, reports: Reports, size: int, *, whole: bool
) -> pytest.TestReport | None:
    """Return the report of the failure, expected or not, or None if no rank failed."""
    assert result.world is not None  # the test ran
    if result.world.verdict is None:
        return None
    failures = {
        rank: report for rank, sent in reports.items() for report in sent[::-1] if _ends(report)
    }
    causes = [
        outcome.rank
        for outcome in result.world.outcomes
        if isinstance(outcome, Raised) and not outcome.consequence and outcome.rank in failures
    ]
    if not causes:
        return _verdict_report(item, result, reports)
    causes.sort(key=lambda rank: failures[rank].skipped)  # failures that xfail doesn't expect first
    report = failures[causes[0]]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for rank in causes:
        alike.setdefault(_crash(failures[rank]), []).append(rank)
    first, *others = map(sorted, alike.values())
    head = f"{ranks_of(causes)} failed{' alike' * (len(first) == len(causes) > 1)}."
    lost = [
        rank
        for rank in sorted(set(range(size)) - set(causes))
        if rank in failures or not reports.get(rank) or reports[rank][-1].when != "teardown"
    ]
    if lost:
        them = "them" if len(causes) > 1 else "it"
        head += f" {ranks_of(lost)} waited for {them} and lost the connection."
    report.sections = _sections({rank: reports[rank] for rank in causes}, {*PHASES})
    chain = report.longrepr
    if not isinstance(chain, ExceptionChainRepr):
        report.longrepr = f"{report.longreprtext}\n{head}"
        return report
    heading = ReprTraceback([ReprEntryNative([head + "\n"])], None, "native")
    chain.chain = [(heading, None, None), *chain.chain]
    for ranks in others:
        chain.addsection(ranks_of(ranks), _text(item, failures[ranks[0]], whole=whole))
    for finding in result.findings:
        if finding.kind in ("argument", "shift") or not {*finding.ranks} <= {*causes}:
            text = "\n".join((finding.what, reason(finding), finding.rule))
            chain.addsection("finding", text)
    if result.examples:
        chain.addsection("hypothesis", result.examples)
    return report


def _verdict_report(
    item: pytest.Item, result: TaskResult, reports: Reports
) -> pytest.TestReport | None:
    """Return the report of a finding, a dead rank or a timeout."""
    world = result.world
    if world is None or world.verdict is None:
        return None
    verdict = world.verdict
    text = "\n".join(part for part in (verdict.what, verdict.why, verdict.hint) if part)
    has_begun = any(
        report.when == "setup" and report.passed for sent in reports.values() for report in sent
    )
    report = failure_report(item, "call" if has_begun else "setup", text)
    report.duration = world.seconds
    stacks = []
    for outcome in world.outcomes:
        if isinstance(outcome, TimedOut) and outcome.where is not None:
            where = outcome.where
            call = f"in {where.collective} " if where.collective else ""
            stacks.append(f"rank {outcome.rank}: {call}at {where.source_line or 'an unknown line'}")
    sections = {
        "where ranks were": "\n".join(stacks),
        "hypothesis": result.examples,
        "traceback": verdict.traceback,  # of a plugin
    }
    for title, text in sections.items():
        if text:
            report.longrepr.addsection(title, text)  # type: ignore[union-attr]  # as built above
    report.sections = _sections(reports, {*PHASES})
    # No rank could report that the test's xfail marks expect this.
    expected = None if item.config.option.runxfail else evaluate_xfail_marks(item)
    if expected is not None and expected.raises is None:
        report.outcome = "skipped"
        report.wasxfail = expected.reason
    return report


def _ends(report: pytest.TestReport) -> bool:
    """Return True if the report is a failure, expected or not."""
    if passed_unexpectedly(report):
        return False
    return report.failed or (report.skipped and hasattr(report, "wasxfail"))


def passed_unexpectedly(report: pytest.TestReport) -> bool:
    """Return True if the test passed on this rank, although ``xfail(strict=True)`` marks it."""
    return report.failed and str(report.longrepr).startswith("[XPASS(strict)]")


def _crash(report: pytest.TestReport) -> tuple[Any, ...]:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return (report.longreprtext,)
    return crash.path, crash.lineno, crash.message


def _text(item: pytest.Item, report: pytest.TestReport, *, whole: bool) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if whole or crash is None:
        return report.longreprtext
    path = os.path.relpath(crash.path, item.config.invocation_params.dir)
    return f"{path}:{crash.lineno}: {crash.message.splitlines()[0]}"


def _sections(reports: Reports, phases: set[str | None]) -> list[tuple[str, str]]:
    """Return the ranks' output; equal output is shown once."""
    texts: dict[tuple[str, str], list[int]] = {}
    for rank, sent in reports.items():
        for report in sent:
            if report.when in phases:
                for title, text in report.sections:
                    ranks = texts.setdefault((title, text), [])
                    if rank not in ranks:
                        ranks.append(rank)
    return [(f"{title}, {ranks_of(ranks).lower()}", text) for (title, text), ranks in texts.items()]


def failure_report(item: pytest.Item, when: str, text: str) -> pytest.TestReport:
    """Return the report of a failure without an exception."""
    path, line, _ = item.location
    crash = ReprFileLocation(path, (line or 0) + 1, text.splitlines()[0])
    trace = ReprTraceback([ReprEntryNative([text + "\n"])], None, "native")
    return _report(item, when, "failed", ExceptionChainRepr([(trace, crash, None)]))


def _passed(item: pytest.Item, when: str) -> pytest.TestReport:
    return _report(item, when, "passed", None)


def _report(item: pytest.Item, when: Any, outcome: Any, longrepr: Any) -> pytest.TestReport:
    keywords: Any = dict.fromkeys(item.keywords, 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, outcome, longrepr, when)
