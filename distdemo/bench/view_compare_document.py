"""Two measurements side by side as a JSON document."""

from __future__ import annotations

from dataclasses import asdict

from distdemo.bench.comparing import ComparedRow, ComparedSeries, Comparison, GaugeShift, Judged
from distdemo.bench.recorded import SeriesKey
from distdemo.bench.view_compare_words import percent, series_words, verdict
from distdemo.view.document import Json, envelope
from distdemo.view.endings import error_entry


def compare_document(comparison: Comparison) -> dict[str, Json]:
    """Every row and series; an error for each that got slower than is allowed."""
    pairs = [(each, row) for each in comparison.series for row in each.rows]
    return envelope(
        "bench compare",
        ok=comparison.ok,
        errors=_errors(comparison),
        old=comparison.old,
        new=comparison.new,
        threshold=comparison.rule.threshold,
        fail_over=comparison.rule.fail_over,
        confidence=comparison.confidence,
        each_confidence=comparison.each,
        suspects=comparison.suspects,
        verdict=verdict(comparison),
        overall=[key_entry(each.key) | _judged(each.overall) for each in comparison.series],
        rows=[key_entry(each.key) | _row(row) for each, row in pairs],
        gauges=[_gauge(each) for each in comparison.gauges],
        only=[
            key_entry(each.key) | {"where": each.where, "bytes": each.sizes, "whole": each.whole}
            for each in comparison.lonely
        ],
        differences=[asdict(each) for each in comparison.differences],
        warnings=list(comparison.warnings),
        notes=list(comparison.notes),
        versions=comparison.versions,
    )


def key_entry(key: SeriesKey) -> dict[str, Json]:
    """What a series is, by the names that the documents of ``bench`` have for it."""
    return {
        "backend": key.backend,
        "command": key.command,
        "form": key.form,
        "in_place": key.in_place,
        "async": key.asynchronous,
        "group_size": key.n,
        "dtype": key.dtype,
        "reduce_op": key.reduce_op,
        "root": key.root,
        "pattern": key.pattern,
        "src": key.src,
        "dst": key.dst,
    }


def _row(row: ComparedRow) -> dict[str, Json]:
    return {"bytes": row.size, "old_seconds": row.old, "new_seconds": row.new} | _judged(row)


def _judged(found: Judged) -> dict[str, Json]:
    return {
        "ratio": found.ratio,
        "interval": found.interval,
        "verdict": found.verdict,
        "fails": found.fails,
        "suspect": found.suspect,
        "old_launches": found.launches[0],
        "new_launches": found.launches[1],
        "explained_by": found.explained_by and _gauge(found.explained_by),
    }


def _gauge(gauge: GaugeShift) -> dict[str, Json]:
    return {
        "backend": gauge.backend,
        "kind": gauge.kind,
        "old_seconds": gauge.old,
        "new_seconds": gauge.new,
        "ratio": gauge.ratio,
        "interval": gauge.interval,
        "moved": gauge.moved,
    }


def _errors(comparison: Comparison) -> list[Json]:
    return [
        error
        for each in comparison.series
        for error in (*_of_rows(each, comparison), *_of_all(each, comparison))
    ]


def _of_rows(series: ComparedSeries, comparison: Comparison) -> list[Json]:
    return [
        _error(f"{series_words(series.key)}, {row.size} B", row, comparison)
        for row in series.rows
        if row.fails
    ]


def _of_all(series: ComparedSeries, comparison: Comparison) -> list[Json]:
    if not series.overall.fails:
        return []
    return [_error(f"{series_words(series.key)}, all sizes", series.overall, comparison)]


def _error(where: str, found: Judged, comparison: Comparison) -> Json:
    low, high = found.interval or (0.0, 0.0)
    return error_entry(
        f"{where}: {found.ratio:.3g} times as long as before.",
        f"More than {percent(comparison.rule.fail_over or 0.0)} is too much; the ratio is between "
        f"{low:.3g} and {high:.3g}.",
        "Measure both again, in turn, to be sure.",
    )
