"""A check as a JSON document: the counts, every case, and an error for whatever is no pass."""

from __future__ import annotations

from collections import Counter

from distdemo.check.records import CaseResult, CheckReport
from distdemo.check.view_grid import verdict, why_none
from distdemo.view.document import Json, envelope
from distdemo.view.endings import error_entry
from distdemo.view.numbers import plural


def check_document(report: CheckReport) -> dict[str, Json]:
    """The whole report; ``ok`` exactly where ``errors`` is empty."""
    return envelope(
        "check",
        ok=report.ok,
        errors=_errors(report),
        scope=report.scope,
        backend=report.backend,
        device=report.device,
        seed=report.seed,
        seconds=report.seconds,
        worlds=report.worlds,
        interrupted=report.interrupted,
        counts=_counts(report),
        versions=report.versions,
        cases=[_case(result) for result in report.results],
    )


def _counts(report: CheckReport) -> dict[str, int]:
    return {
        "total": len(report.results),
        "passed": report.count("passed"),
        "failed": report.count("failed"),
        "not_supported": report.count("not supported"),
        "not_run": report.count("not run"),
    }


def _case(result: CaseResult) -> dict[str, Json]:
    return {
        "id": result.id,
        "op": result.op,
        "form": result.form,
        "dtype": result.dtype,
        "world_size": result.world_size,
        "status": result.status,
        "seconds": result.seconds,
        "why": result.why,
        "command": result.command,
        "details": list(result.details),
    }


def _errors(report: CheckReport) -> list[Json]:
    """An entry for each failed case, and for each reason why cases did not run."""
    errors = [_failure(result) for result in report.results if result.status == "failed"]
    reasons = Counter(result.why for result in report.results if result.status == "not run")
    for why, count in reasons.items():
        was = "was" if count == 1 else "were"
        errors.append(error_entry(f"{plural(count, 'case')} {was} not run.", why, ""))
    if not errors and not report.ok:
        errors.append(error_entry(verdict(report), why_none(report), ""))
    return errors


def _failure(result: CaseResult) -> dict[str, Json]:
    """The hint is the command that runs this case alone."""
    entry = error_entry(f"{result.id} failed.", result.why, result.command)
    return entry | {"case": result.id, "details": list(result.details)}
