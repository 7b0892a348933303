"""Display of ``doctor``: one line per finding, plus explanation and fix for problems."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.doctor.records import TOPICS, Diagnosis, DoctorReport, Level
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Item, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import duration

STYLES: dict[Level, str] = {
    "broken": colours.WRONG,
    "warning": colours.UNSURE,
    "fine": colours.RIGHT,
    "skipped": colours.QUIET,
}
"""Levels, worst first."""


def doctor_view(report: DoctorReport, sign: Signs) -> Iterator[Block]:
    """Yield the findings by topic, and the counts by level."""
    for topic, title in TOPICS.items():
        findings = [finding for finding in report.findings if finding.topic == topic]
        if findings:
            yield Heading(title)
            yield from (_item(finding, sign) for finding in findings)
            yield Paragraph()
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    footer = f"{report.host}, {duration(report.elapsed_s)}; {versions}"
    yield Paragraph(one_line(footer), colours.QUIET)
    counts = {level: count for level in STYLES if (count := report.counts[level])}
    worst: Level = next(iter(counts), "skipped")
    counted = ", ".join(
        f"{count} {level}{'s' if level == 'warning' and count > 1 else ''}"
        for level, count in counts.items()
    )
    ok = {"fine": True, "broken": False}.get(worst)
    yield Summary(f"{counted or 'Nothing was checked'}.", ok, _mark(worst, sign))


def _mark(level: Level, sign: Signs) -> str:
    return {"fine": sign.right, "broken": sign.wrong, "skipped": sign.none}.get(level, "!")


def _item(finding: Diagnosis, sign: Signs) -> Item:
    return Item(
        _mark(finding.level, sign),
        finding.check,
        f"{one_line(finding.what)}.",
        STYLES[finding.level],
        tuple(
            (name, one_line(text))
            for name, text in (("Why", finding.why), ("Try", finding.hint))
            if text
        ),
        is_problem=finding.level in ("broken", "warning"),
    )
