"""Report on a recording."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.sanitizer.records import Finding, Recording
from distdemo.sanitizer.text import calls_text, rank_label, reason, stopped_text
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import plural


def recording_view(report: Recording, sign: Signs, *, calls: bool = False) -> Iterator[Block]:
    """Yield the findings and, on request, the calls."""
    title = (report.folder, plural(report.world_size, "rank"), *report.hosts)
    yield Heading(f" {sign.dot} ".join(title))
    if calls:
        yield Paragraph(calls_text(report.calls), verbatim=True)
    for each in (*report.warnings, *report.findings):
        yield from finding_view(each)
    for what, ranks in (("left no notes", report.absent), ("did not end", report.unended)):
        if ranks:
            yield Paragraph(f"{rank_label(ranks).capitalize()} {what}.")
    yield Summary(_verdict(report), report.ok)


def _verdict(report: Recording) -> str:
    if report.findings:
        return report.findings[0].what
    if report.stopped:
        return stopped_text(report.stopped)
    if not report.ok:
        return f"{plural(len(report.warnings), 'warning')}."
    count = sum(each.count * len(each.ranks) for each in report.calls)
    return f"No errors in {plural(count, 'call')}."


def finding_view(finding: Finding) -> Iterator[Paragraph]:
    """Yield what happened, the ranks' calls in columns, and the rule."""
    yield Paragraph(
        f"Warning: {finding.what}" if finding.kind in {"shift", "severed"} else finding.what
    )
    if rows := reason(finding):
        yield Paragraph(rows, verbatim=True)
    if finding.rule:
        yield Paragraph(finding.rule)
