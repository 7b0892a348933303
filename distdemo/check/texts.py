"""The verdict of a check in words, for the terminal and for CI."""

from __future__ import annotations

from distdemo.check.records import CheckReport
from distdemo.view.foreign import one_line
from distdemo.view.format import plural


def verdict(report: CheckReport) -> str:
    """Return the verdict in a sentence or two. A case that did not run never counts as passed."""
    counts = report.counts
    passed, failed, left = counts["passed"], counts["failed"], counts["not_run"]
    start = "Interrupted: " if report.interrupted else ""
    if not passed + failed:
        return f"{start}No case ran: {reason_none_ran(report)}."
    due = plural(passed + failed + left, "case")
    if failed:
        return f"{start}{failed:,} of {due} failed{f'; {left:,} not run' if left else ''}."
    if left:
        return f"{start}{left:,} of {due} not run."
    known, skipped = counts["known_wrong"], counts["not_supported"]
    if known and report.strict:
        return f"{start}{known:,} of {plural(passed + known, 'case')} known to be wrong."
    text = f"{start}{due} passed."
    text += f" {known:,} known to be wrong in this torch." if known else ""
    return text + (f" {skipped:,} not supported." if skipped else "")


def reason_none_ran(report: CheckReport) -> str:
    """Return the reason no case ran."""
    if not report.cases:
        return "none was selected"
    reasons = [result.why for result in report.of("not run")]
    if not reasons and report.of("known wrong"):
        return (
            f"{plural(len(report.cases), 'case')} known to be wrong in this torch, or unsupported"
        )
    if not reasons:
        number = plural(len(report.cases), "selected case")
        return f"{report.backend} on {report.device} supports none of the {number}"
    return one_line(next(filter(None, reasons), "no reason was given")).rstrip(".")
