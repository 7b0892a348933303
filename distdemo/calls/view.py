"""Report on a finding."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.calls.records import Finding, Level
from distdemo.calls.text import advice, headline, reason
from distdemo.view.blocks import Paragraph

LABELS: dict[Level, str] = {"error": "", "warn": "Warning: ", "note": "Note: "}


def finding_view(finding: Finding) -> Iterator[Paragraph]:
    """Yield what happened, the ranks' calls in columns, and the rule."""
    yield Paragraph(f"{LABELS[finding.level]}{headline(finding)}")
    if rows := reason(finding):
        yield Paragraph("\n".join(rows), verbatim=True)
    if rule := advice(finding):
        yield Paragraph(rule)
