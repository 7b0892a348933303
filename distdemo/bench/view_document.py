"""A measurement as a JSON document, with the time of every iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_again import again
from distdemo.bench.view_names import labels
from distdemo.bench.view_numbers import size_text
from distdemo.bench.view_records import series_entry, setup_entry, spec_entry
from distdemo.bench.view_verdict import verdict, why_none
from distdemo.view.document import envelope
from distdemo.view.endings import error_entry, world_errors
from distdemo.view.numbers import plural

Json = Any


def bench_document(report: BenchReport) -> dict[str, Json]:
    """The whole report; ``ok`` exactly where ``errors`` is empty."""
    return envelope(
        "bench",
        ok=report.ok,
        errors=list(_errors(report)),
        spec=spec_entry(report),
        environment=dict(report.environment),
        versions=dict(report.versions),
        seconds=report.seconds,
        interrupted=report.interrupted,
        setups={name: setup_entry(setup) for name, setup in report.setups.items()},
        series=[series_entry(series) for series in report.series],
        notes=list(report.notes),
    )


def _errors(report: BenchReport) -> Iterator[Json]:
    """The world that failed, each series with an error, each row with wrong elements."""
    found = [] if report.failure is None else world_errors(report.failure)
    for name, series in zip(labels(report.series), report.series, strict=True):
        if series.error:
            found.append(error_entry(f"{name} was not measured to its end.", series.error, ""))
        found += [_wrong(name, series, row) for row in series.rows if row.wrong]
    if report.interrupted:
        rows = sum(len(series.rows) for series in report.series)
        why = f"A signal ended it after {plural(rows, 'size')}."
        found.append(error_entry("The measurement was interrupted.", why, ""))
    if not found and not report.ok:
        found.append(error_entry(verdict(report), why_none(report), ""))
    yield from found


def _wrong(name: str, series: Series, row: Row) -> dict[str, Json]:
    """The hint is the command that shows them."""
    what = f"{name} gave wrong elements at {size_text(row.size)}."
    why = f"{row.wrong:,} of {row.checked:,} differ from plain arithmetic."
    hint = f"See for yourself: {again(series.spec, row.size)}"
    return error_entry(what, why, hint) | {"bytes": row.size}
