"""A measurement as comma-separated values: a line a size; what it depends on in comments above.

RFC 4180 but for the lines that begin with ``#``: pandas reads it with ``comment="#"``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_names import labels
from distdemo.bench.view_records import row_entry, series_entry

END = "\r\n"
Value = str | int | float | None
OF_SERIES = (
    *("backend", "op", "form", "in_place", "async", "world_size", "group_size"),
    *("dtype", "reduce_op", "root", "pattern", "src", "dst"),
)
OF_ROW = (
    *("bytes", "elements", "iterations"),
    *("median_seconds", "p10_seconds", "p90_seconds", "p99_seconds", "min_seconds", "max_seconds"),
)
INTERVAL = ("interval_low_seconds", "interval_high_seconds")
RESULTS = ("steady", "algbw_bytes_per_second", "busbw_bytes_per_second", "checked", "wrong")
JUDGED = ("limit_share", "verdict", "overlap_hidden")
COLUMNS = (*OF_SERIES, *OF_ROW, *INTERVAL, *RESULTS, *JUDGED)


def bench_csv(report: BenchReport) -> str:
    """The rows of all series. What is not known or does not apply is empty."""
    memory = io.StringIO(newline="")
    for key, value in _comments(report):
        memory.write(f"# {key}: {' '.join(str(value).split())}{END}")
    writer = csv.DictWriter(memory, COLUMNS, lineterminator=END)
    writer.writeheader()
    for series in report.series:
        writer.writerows(_line(series, row) for row in series.rows)
    return memory.getvalue()


def _comments(report: BenchReport) -> Iterator[tuple[str, Value]]:
    """Versions, environment, limits; what is missing, and why."""
    yield from report.versions.items()
    yield from report.environment.items()
    yield "seconds", report.seconds
    for name, setup in report.setups.items():
        if setup.bound is not None:
            bandwidth = f"{setup.bound.bandwidth!r} bytes per second"
            yield f"{name} limit", f"{setup.bound.kind}, {bandwidth}"
    for name, series in zip(labels(report.series), report.series, strict=True):
        if series.error or series.spec.refused:
            yield f"not measured, {name}", series.error or series.spec.refused
    if report.interrupted:
        yield "interrupted", "a signal ended it early"
    if report.failure is not None and report.failure.verdict is not None:
        yield "failed", report.failure.verdict.what


def _line(series: Series, row: Row) -> Mapping[str, Value]:
    """The numbers of the JSON document, under the same names."""
    of_series, of_row = series_entry(replace(series, rows=())), row_entry(row)
    low, high = row.interval or (None, None)
    values = {name: of_series[name] for name in OF_SERIES}
    values |= {name: of_row[name] for name in (*OF_ROW, *RESULTS)}
    values |= dict(zip(INTERVAL, (low, high), strict=True))
    values["limit_share"] = row.judgement.share if row.judgement else None
    values["verdict"] = row.judgement.kind if row.judgement else None
    values["overlap_hidden"] = row.overlap.hidden if row.overlap else None
    return {name: _spelled(value) for name, value in values.items()}


def _spelled(value: Value) -> Value:
    """Whether something holds as JSON writes it."""
    return str(value).lower() if isinstance(value, bool) else value
