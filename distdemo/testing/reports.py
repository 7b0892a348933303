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
        if result.unavailable:
            line = (item.location[1] or 0) + 1
            place = str(item.path), line, f"Skipped: {result.unavailable}"
            return [_report(item, "setup", "skipped", place), _passed(item, "teardown")]
        return [failure_report(item, "setup", result.refused), _passed(item, "teardown")]
    hook = item.config.hook
    reports: Reports = {
        rank: [hook.pytest_report_from_serializable(config=item.config, data=each) for each in sent]
        for rank, sent in sorted(result.reports.items())
    }
    decided = _decided(item, result, reports, size, whole=detail == "all")
    subtests = _subtests(reports, decided)
    if decided in subtests:
        count = sum(each.failed for each in subtests)
        text = f"contains {count} failed subtest{'s' * (count > 1)}"  # as pytest's own
        decided = _report(item, "call", "failed", text)
    merged = []
    for when in PHASES:
        if when == "call":
            merged += subtests
        if decided is not None and decided.when == when:
            merged.append(decided)
            if when == "setup":
                merged.append(_passed(item, "teardown"))
                break
            continue
        of_all = [
            each
            for sent in reports.values()
            for each in sent
            if each.when == when and not _is_subtest(each)
        ]
        if failed := [each for each in of_all if each.failed]:
            merged.append(failed[0])
        elif of_all:
            merged.append(_best(of_all, reports))
        elif when == "teardown" or (decided is not None and when == "setup"):
            merged.append(_passed(item, when))
    for report in merged:
        if report.failed and detail == "calls" and isinstance(report.longrepr, ExceptionChainRepr):
            report.longrepr.addsection("calls of all ranks", _calls(result.calls))
    return merged


def _calls(calls: Sequence[CallCount]) -> str:
    """Return the calls of all ranks; a caller that they share is the test, and left out."""
    callers = {each.source_line.partition(FROM)[2] for each in calls}
    text = calls_text(calls[:MAX_CALLS])
    if len(callers) == 1:
        text = text.replace(f"{FROM}{callers.pop()}", "")
    more = len(calls) - MAX_CALLS
    return text + (f"\n  and {plural(more, 'other call')}" if more > 0 else "")


def _is_subtest(report: pytest.TestReport) -> bool:
    return hasattr(report, "context")


def _subtests(reports: Reports, decided: pytest.TestReport | None) -> list[pytest.TestReport]:
    """Return one report per subtest: the one that decided, else of a rank that failed, else any."""
    found: dict[str, pytest.TestReport] = {}
    for each in (each for sent in reports.values() for each in sent if _is_subtest(each)):
        name = str(vars(each)["context"])
        if each is decided or name not in found or (each.failed and found[name].passed):
            found[name] = each
    return list(found.values())


def _best(of_all: list[pytest.TestReport], reports: Reports) -> pytest.TestReport:
    """Return the report of a phase without failures: passed if any rank passed, else skipped."""
    best = min(of_all, key=lambda each: (each.skipped, -each.duration))
    best.sections = _sections(reports, {best.when})
    return best


def _decided(
    item: pytest.Item, result: TaskResult, reports: Reports, size: int, *, whole: bool
) -> pytest.TestReport | None:
    """Return the report of the failure, expected or not, or None if no rank failed."""
    world = result.world
    assert world is not None  # noqa: S101 - the test ran
    verdict = world.verdict
    failing = {rank: each for rank, sent in reports.items() for each in sent[::-1] if _ends(each)}
    if verdict is None:
        return None
    raised = [o.rank for o in world.outcomes if isinstance(o, Raised) and not o.consequence]
    causes = [rank for rank in raised if rank in failing]
    causes.sort(key=lambda rank: failing[rank].skipped)  # failures that xfail doesn't expect first
    lines = [part for part in (verdict.what, verdict.why, verdict.hint) if part]
    if not causes:  # a finding, a dead rank or a timeout
        started = any(
            each.when == "setup" and each.passed for one in reports.values() for each in one
        )
        report = failure_report(item, "call" if started else "setup", "\n".join(lines))
        report.duration = world.seconds
        stacks = [
            f"rank {o.rank}: {f'in {o.where.collective} ' if o.where.collective else ''}"
            f"at {o.where.source_line or 'an unknown line'}"
            for o in world.outcomes
            if isinstance(o, TimedOut) and o.where is not None
        ]
        sections = {
            "where ranks were": "\n".join(stacks),
            "hypothesis": result.examples,
            "traceback": verdict.traceback,  # of a plugin
        }
        for title, text in sections.items():
            if text:
                report.longrepr.addsection(title, text)  # type: ignore[union-attr]  # as built above
        report.sections = _sections(reports, {*PHASES})
        return _expected(item, report)
    report = failing[causes[0]]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for rank in causes:
        alike.setdefault(_crash(failing[rank]), []).append(rank)
    first, *others = map(sorted, alike.values())
    suffered = sorted(set(range(size)) - set(causes))
    head = f"{ranks_of(causes)} failed{' alike' * (len(first) == len(causes) > 1)}."
    ran = [r for r in suffered if reports.get(r) and reports[r][-1].when == "teardown"]
    well = [rank for rank in ran if rank not in failing]
    left = [rank for rank in suffered if rank not in well]
    if left:
        them = "them" if len(causes) > 1 else "it"
        head += f" {ranks_of(left)} waited for {them} and lost the connection."
    chain = report.longrepr
    if isinstance(chain, ExceptionChainRepr):
        heading = ReprTraceback([ReprEntryNative([head + "\n"])], None, "native")
        chain.chain = [(heading, None, None), *chain.chain]
        add = chain.addsection
        for group in others:
            add(ranks_of(group), _text(item, failing[group[0]], whole=whole))
        for each in result.findings:
            if each.kind in ("argument", "shift") or not {*each.ranks} <= {*causes}:
                add("finding", "\n".join((each.what, reason(each), each.rule)))
        if result.examples:
            add("hypothesis", result.examples)
    else:
        report.longrepr = f"{report.longreprtext}\n{head}"
    report.sections = _sections({rank: reports[rank] for rank in causes}, {*PHASES})
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


def _expected(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Apply the test's xfail marks to a failure that no rank could report."""
    expected = None if item.config.option.runxfail else evaluate_xfail_marks(item)
    if expected is not None and expected.raises is None:
        report.outcome, report.wasxfail = "skipped", expected.reason
    return report


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
