"""One-sentence answer to "Is this normal?", and short names for series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from distdemo.cli.contract import Error
from distdemo.measure.recording import traits
from distdemo.measure.records import BenchReport, Row, Series, SeriesSpec, Verdict
from distdemo.view.format import duration, listing, percent, plural, plus_minus, rate, short_size

MOST_NAMED = 3  # series listed by name in one line


def answer(report: BenchReport, half: str = "±") -> tuple[str, bool]:
    """Return the answer (normal, not normal or not measurable, and why), and True if all is well.

    Args:
        report: A complete or partial report.
        half: Sign before the half-width of an interval.
    """
    rows, names = report.rows, series_names(report.series)
    if not report.ok:
        wrong = next(_wrong_errors(report), None)
        text = f"{wrong.what} {wrong.why} {wrong.hint}" if wrong else _incomplete_reason(report)
        return text, False
    judged = [(s, row, row.judgement) for s in report.series for row in s.rows if row.judgement]
    abnormal = [  # oversubscribed rows are never steady
        (series, row, judgement)
        for series, row, judgement in judged
        if judgement.verdict is Verdict.OVERSUBSCRIBED
        or (judgement.verdict is Verdict.SLOW and row.steady)
    ]
    if abnormal:
        last = abnormal[-1][2]
        same = [each for each in abnormal if each[2].verdict is last.verdict]
        series = {names[each.spec] for each, _, _ in same}
        scope = scope_text(series, [row for _, row, _ in same], report)
        count = f"{len(same)} of {plural(len(rows), 'size')} ({scope}): {last.verdict.value}"
        return f"Not normal: {count}. {last.why} {last.hint}", False
    unsteady = [
        row
        for row in rows
        if not row.steady or (row.judgement and row.judgement.verdict is Verdict.DISTURBED)
    ]
    count = f"{len(unsteady)} of {plural(len(rows), 'size')} not steady"
    if 2 * len(unsteady) > len(rows):
        why = "other programs used the cores, or the time was too short"
        more = "--budget" if report.spec.iters is None else "--iters"
        hint = f"Try again on a quiet machine, or with a larger {more}."
        if all(row.interval_s is None for row in unsteady):
            why, hint = "too few launches for an interval", "Try --launches 6 or more."
        within = plus_minus(report.spec.precision, half)
        return f"Not measurable now: {count} within {within}: {why}. {hint}", False
    results = [_best_busbw(report)]
    if checked := sum(row.checked for row in rows):
        results.append(f"{checked:,} elements verified")
    if unsteady:
        results.append(count)
    if any(judgement.verdict is not Verdict.UNKNOWN for _, _, judgement in judged):
        return f"Normal: {'; '.join(results)}.", True
    why = "the machine's limits were not measured" if judged else "there is no bandwidth to judge"
    return f"Measured: {'; '.join(results)}. Not judged: {why}.", True


def errors(report: BenchReport) -> tuple[Error, ...]:
    """Return the errors for the JSON document, except that of a failed world."""
    names = series_names(report.series)
    found = [
        *_wrong_errors(report),
        *(Error(f"{names[s.spec]} is incomplete.", s.error) for s in report.series if s.error),
    ]
    if not found and not report.ok and report.world is None:
        found.append(Error(_incomplete_reason(report)))
    return tuple(found)


def _wrong_errors(report: BenchReport) -> Iterator[Error]:
    """Yield one error per row with wrong elements."""
    names = series_names(report.series)
    for series in report.series:
        for row in series.rows:
            if row.wrong:
                size = row.size_bytes
                sizes = f"--sizes {size} " if size else ""
                yield Error(
                    f"{names[series.spec]} is wrong at {short_size(size)}.",
                    f"{row.wrong:,} of {row.checked:,} elements differ from plain arithmetic.",
                    f"Try {series.spec.operation.command} alone with {sizes}--check-every 1.",
                )


def _incomplete_reason(report: BenchReport) -> str:
    """Return why the measurement is incomplete."""
    points = sum(len(series.spec.sizes_bytes) for series in report.series)
    done = f"{len(report.rows)} of {plural(points, 'size')} were measured."
    if report.world is not None and report.world.verdict is not None:
        return f"{report.world.verdict.what} {done}"
    if report.interrupted:
        return f"Interrupted: {done}"
    names = series_names(report.series)
    reasons = ((names[each.spec], each.error or each.spec.refused) for each in report.series)
    return next((f"{name}: {why.rstrip('.')}." for name, why in reasons if why), done)


def _best_busbw(report: BenchReport) -> str:
    """Return ``busbw up to 3.90 GB/s at 4 MiB (62% of a TCP stream)``; without busbw the time."""
    series, row = max(
        ((series, row) for series in report.series for row in series.rows),
        key=lambda pair: (pair[1].busbw_bytes_per_s, -pair[1].median_s),
    )
    if not row.busbw_bytes_per_s:
        return f"{series.spec.operation.command} in {duration(row.median_s)}"
    name = f", {series_names(report.series)[series.spec]}" if len(report.measured) > 1 else ""
    setup = report.setup(series.spec.backend)
    share = ""
    if row.judgement and row.judgement.limit_share and setup and setup.bound:
        share = f" ({percent(row.judgement.limit_share)} of a {setup.bound.transport.value})"
    return f"busbw up to {rate(row.busbw_bytes_per_s)} at {short_size(row.size_bytes)}{name}{share}"


def scope_text(names: Iterable[str], rows: Sequence[Row], report: BenchReport) -> str:
    """Return ``64 KiB``, or ``all-gather, 8 B to 64 KiB``."""
    sizes = [row.size_bytes for row in rows]
    first, last = short_size(min(sizes)), short_size(max(sizes))
    span = first if first == last else f"{first} to {last}"
    if len(report.series) == 1:
        return span
    distinct = sorted(names)
    series = listing(distinct) if len(distinct) <= MOST_NAMED else f"{len(distinct)} series"
    return f"{series}, {span}"


# ------------------------------------------------------------------------------------------ names

NAMING_ORDER = (
    *("op", "backend", "form", "placement", "device", "reduce op", "async", "dtype"),
    *("ranks", "group", "root", "pair"),
)
"""Traits in the order in which they are used to distinguish series."""


def series_names(series: Sequence[Series]) -> dict[SeriesSpec, str]:
    """Return a short name per series: the traits that distinguish it, or op and backend."""
    traits_of = [traits(each.spec) for each in series]

    def names(trait_names: Sequence[str]) -> list[str]:
        return [" ".join(filter(None, (each[name] for name in trait_names))) for each in traits_of]

    chosen: list[str] = []
    for trait in NAMING_ORDER:
        if len(set(names([*chosen, trait]))) > len(set(names(chosen))):
            chosen.append(trait)
    named = zip(series, names(chosen or ["op", "backend"]), strict=True)
    return {each.spec: name or each.spec.operation.command for each, name in named}


def headline(report: BenchReport) -> str:
    """Return the measurement in one line: ops, backends and the traits that all series share."""
    every = [traits(each.spec) for each in report.series]
    values = {name: list(dict.fromkeys(each[name] for each in every)) for name in every[0]}
    parts = [", ".join(v) for k, v in values.items() if k in ("op", "backend") or len(v) == 1]
    return " · ".join(filter(None, parts))
