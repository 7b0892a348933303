"""Report on a finding."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.calls.records import Finding
from distdemo.calls.text import reason
from distdemo.view.blocks import Paragraph


def finding_view(finding: Finding, *, warning: bool = False) -> Iterator[Paragraph]:
    """Yield what happened, the ranks' calls in columns, and the rule."""
    yield Paragraph(f"Warning: {finding.what}" if warning else finding.what)
    if rows := reason(finding):
        yield Paragraph(rows, verbatim=True)
    if finding.rule:
        yield Paragraph(finding.rule)
