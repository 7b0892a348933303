"""What ``doctor`` found, or served, as a JSON document."""

from __future__ import annotations

from distdemo.doctor.records import DoctorReport, Finding, Level, ListenReport
from distdemo.view.document import Json, envelope
from distdemo.view.endings import error_entry

LEVELS: tuple[Level, ...] = ("fine", "warning", "broken", "skipped")


def doctor_document(report: DoctorReport) -> dict[str, Json]:
    """Every finding with all its fields; an error for each that is broken."""
    errors = [
        error_entry(f"{each.title}: {each.seen}.", each.why, each.do)
        for each in report.findings
        if each.level == "broken"
    ]
    return envelope(
        "doctor",
        ok=report.ok,
        errors=errors,
        host=report.host,
        seconds=report.seconds,
        versions=report.versions,
        counts={level: report.count(level) for level in LEVELS},
        findings=[_finding(each) for each in report.findings],
    )


def listen_document(report: ListenReport) -> dict[str, Json]:
    """Where ``doctor --listen`` was, and each visit."""
    return envelope(
        "doctor",
        ok=True,
        address=report.address,
        port=report.port,
        reason=report.reason,
        seconds=report.seconds,
        interrupted=report.interrupted,
        versions=report.versions,
        visits=[
            {
                "address": visit.address,
                "host": visit.host or None,
                "seconds": visit.seconds,
                "received": visit.received,
                "sent": visit.sent,
                "end": visit.end,
            }
            for visit in report.visits
        ],
    )


def _finding(finding: Finding) -> dict[str, Json]:
    return {
        "check": finding.check,
        "topic": finding.topic,
        "title": finding.title,
        "level": finding.level,
        "seen": finding.seen,
        "why": finding.why or None,
        "do": finding.do or None,
        "facts": dict(finding.facts),
    }
