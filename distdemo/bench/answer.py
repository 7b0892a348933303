"""Answer to "Is this normal?", one sentence per range of sizes, and short names for series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from distdemo.bench.records import Answer, BenchReport, Series, SeriesSpec, SizeRow, SizeVerdict
from distdemo.cli.contract import Error
from distdemo.view.format import duration, listing, percent, plural, plus_minus, rate, short_size

MOST_NAMED = 3  # series listed by name in one line
GOOD = (Answer.NORMAL, Answer.MEASURED)
Pairs = list[tuple[Series, SizeRow]]
"""Rows with their series."""


def answer(report: BenchReport, half: str = "±") -> tuple[str, bool | None]:
    """Return one sentence per answer, and True if all is well, None if not, False for a failure.

    Args:
        report: A complete or partial report.
        half: Sign before the half-width of an interval.
    """
    if not report.complete:
        wrong = next(_wrong_errors(report), None)
        text = f"{wrong.what} {wrong.why} {wrong.hint}" if wrong else _incomplete_reason(report)
        return text, False
    groups: dict[tuple[Answer, str], Pairs] = {}
    # Algorithms are measured for comparison; only a backend's own call is judged.
    own_calls = [series for series in report.series if not series.spec.algorithm and series.rows]
    for series in own_calls or report.series:
        for row in series.rows:
            key = (row.answer, "" if row.answer in GOOD else series.spec.backend)
            groups.setdefault(key, []).append((series, row))
    order = list(Answer)
    sentences = []
    for key in sorted(groups, key=lambda key: order.index(key[0])):
        pairs = groups[key]
        scope = f" at {scope_text(pairs, report)}" if len(groups) > 1 else ""
        reason = _reason(*key, pairs, report, half)
        sentences.append(f"{key[0].value.capitalize()}{scope}: {reason}")
    measured = len(report.rows)
    total = sum(len(series.spec.sizes_bytes) for series in report.series)
    if measured < total:
        what = f"The budget was spent before {total - measured} of {plural(total, 'size')}"
        sentences.append(f"{what} were measured. Try a larger --budget.")
    is_good = report.answer in GOOD and measured == total
    return " ".join(sentences), False if report.failing else is_good or None


def _reason(kind: Answer, backend: str, pairs: Pairs, report: BenchReport, half: str) -> str:
    """Return what follows the answer: figures if all is well, else the reason and what to try."""
    rows = [row for _, row in pairs]
    if kind in (Answer.SLOW, Answer.DISTURBED):
        return f"{_uncapitalized(why_text(rows))}{advice_text(rows)}"
    if kind is Answer.VARIES:
        setup = report.setup(backend)
        own = ""
        if setup and setup.load:
            own = f" The machine was not disturbed, so that is {backend}'s own."
        is_open = report.spec.iters is None and not report.spec.launches
        more = "--budget" if is_open else "--launches"
        return f"{_uncapitalized(why_text(rows))}{own} A larger {more} narrows it."
    figures = [_best_busbw(pairs, report)]
    if widths := [row.spread_share for row in rows if row.spread_share is not None]:
        figures.append(f"medians within {plus_minus(max(widths), half)}")
    if checked := sum(row.checked for row in rows):
        figures.append(f"{checked:,} elements verified")
    text = f"{'; '.join(figures)}."
    if kind is Answer.NORMAL:
        return text
    reasons = [row.judgement.why for row in rows if row.judgement]
    if not reasons:
        return f"{text} Not judged: there is no bandwidth to judge."
    return f"{text} Not judged: {_uncapitalized(reasons[-1])}{advice_text(rows)}"


def why_text(rows: Sequence[SizeRow]) -> str:
    """Return the reason for the verdict on the rows; that of the last one if they differ."""
    reasons = [row.judgement.why for row in rows if row.judgement]
    if len(set(reasons)) < 2:
        return reasons[-1] if reasons else ""
    return f"At {short_size(rows[-1].size_bytes)}, {_uncapitalized(reasons[-1])}"


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]


def advice_text(rows: Sequence[SizeRow]) -> str:
    """Return the advice for the rows, after a space; empty if it isn't certain that it applies.

    A fixed cost is certain if all rows are steady. The other verdicts with an advice are either
    measured apart from the rows, or hold for the whole interval.
    """
    last = rows[-1].judgement
    if last is None or not last.hint:
        return ""
    if last.verdict is SizeVerdict.LATENCY_BOUND and not all(row.steady for row in rows):
        return ""
    return f" {last.hint}"


def errors(report: BenchReport) -> tuple[Error, ...]:
    """Return the errors for the JSON document, except that of a failed world."""
    names = series_names(report.series)
    all_errors = [
        *_wrong_errors(report),
        *(Error(f"{names[s.spec]} is incomplete.", s.error) for s in report.series if s.error),
    ]
    if not all_errors and not report.complete and report.world is None:
        all_errors.append(Error(_incomplete_reason(report)))
    if report.complete and report.failing:
        what = f"--fail-on {', '.join(report.failing)}: some sizes have this answer."
        all_errors.append(Error(what, answer(report)[0]))
    return tuple(all_errors)


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
    total = sum(len(series.spec.sizes_bytes) for series in report.series)
    done = f"{len(report.rows)} of {plural(total, 'size')} were measured."
    if report.world is not None and report.world.verdict is not None:
        return f"{report.world.verdict.what} {done}"
    if report.interrupted:
        return f"Interrupted: {done}"
    names = series_names(report.series)
    for series in report.series:
        if why := series.error or series.spec.refused:
            return f"{names[series.spec]}: {why.rstrip('.')}."
    return done


def _best_busbw(pairs: Pairs, report: BenchReport) -> str:
    """Return ``busbw up to 3.90 GB/s at 4 MiB (62% of a TCP stream)``; without busbw the time."""
    series, row = max(pairs, key=lambda pair: (pair[1].busbw_bytes_per_s, -pair[1].median_s))
    if not row.busbw_bytes_per_s:
        return f"{series.spec.operation.command} in {duration(row.median_s)}"
    text = f"busbw up to {rate(row.busbw_bytes_per_s)} at {short_size(row.size_bytes)}"
    if len(report.measured) > 1:
        text += f", {series_names(report.series)[series.spec]}"
    setup = report.setup(series.spec.backend)
    if row.judgement and row.judgement.limit_share and setup and setup.bound:
        text += f" ({percent(row.judgement.limit_share)} of a {setup.bound.transport.value})"
    return text


def scope_text(pairs: Pairs, report: BenchReport) -> str:
    """Return ``64 KiB``, ``8 B to 2 KiB and 64 KiB``, or ``all-gather 8 B; reduce 8 B to 64 KiB``.

    Sizes are joined only if the series has none between them that is not meant.
    """
    names = series_names(report.series)
    texts = []
    for series in report.series:
        meant = {row.size_bytes for own, row in pairs if own is series}
        if not meant:
            continue
        spans = []
        sizes = [row.size_bytes for row in series.rows]
        for is_meant, span in groupby(sizes, meant.__contains__):
            if is_meant:
                shown = [short_size(size) for size in span]
                spans.append(f"{shown[0]} to {shown[-1]}" if shown[1:] else shown[0])
        name = "" if len(report.series) == 1 else f"{names[series.spec]} "
        texts.append(f"{name}{listing(spans)}")
    if len(texts) > MOST_NAMED:
        return f"{plural(len(pairs), 'size')} of {len(texts)} series"
    return "; ".join(texts)


# ------------------------------------------------------------------------------------------ names

NAMING_ORDER = (
    *("op", "algorithm", "backend", "form", "placement", "device", "reduce op", "async", "dtype"),
    *("ranks", "group", "root", "pair"),
)
"""Traits in the order in which they are used to distinguish series."""


def series_names(series: Sequence[Series]) -> dict[SeriesSpec, str]:
    """Return a short name per series: the traits that distinguish it, or op and backend."""
    traits = [result.spec.traits() for result in series]

    def names(chosen: Sequence[str]) -> list[str]:
        return [" ".join(filter(None, (own[name] for name in chosen))) for own in traits]

    chosen: list[str] = []
    for trait in NAMING_ORDER:
        if len(set(names([*chosen, trait]))) > len(set(names(chosen))):
            chosen.append(trait)
    return {
        result.spec: name or result.spec.operation.command
        for result, name in zip(series, names(chosen or ["op", "backend"]), strict=True)
    }


def headline(report: BenchReport) -> str:
    """Return the measurement in one line: ops, backends and the traits that all series share."""
    traits = [series.spec.traits() for series in report.series]
    parts = []
    for name in traits[0]:
        values = list(dict.fromkeys(own[name] for own in traits))
        if name in ("op", "backend") or len(values) == 1:
            parts.append(", ".join(values))
    return " · ".join(filter(None, parts))
