"""Answer "Is this normal?" for each row and for the report. No torch.

The interval of the median is compared with TCP streams between the same ranks in the same run:
their bandwidth and their latency. A row is slow if its whole interval is, and normal if none of it
is. Whether other programs disturbed the machine is measured (see ``measure.machine``), never
inferred from the interval.
"""

from __future__ import annotations

from dataclasses import replace

from distdemo.bench.records import (
    Answer,
    BenchReport,
    Series,
    Setup,
    SizeRow,
    StreamLimit,
    series_names,
)
from distdemo.view.format import digits, duration, percent, plural, plus_minus, rate, short_size

SLOW_SHARE = 1 / 6
"""Share of the limit below which a bandwidth is unusually low. gloo between two ranks reaches 0.2
to 0.7 of a TCP stream at 1 MiB and more (copies and arithmetic alternate with sending); if it were
five times slower, 0.04 to 0.14."""
SLOW_LATENCIES = 25
"""Multiple of the stream's latency, for each of 2(n−1) sequential messages, above which a fixed
cost is unusual. gloo's is 6 to 12 times (it hands messages from thread to thread); five times
slower it would be 40 to 60."""
MIN_SLOW_MESSAGE_S = 50e-6
"""Cost of each such message that is never unusual: torch and a backend's own code take some ten
microseconds per call on any transport."""
VARIES_SHARE = 0.5
"""Half-width of the interval above which a median varies too much to be called normal. On a quiet
machine gloo's is 0.05 to 0.35, as its threads run on other cores in every world; mpi's is 0.03."""
TAKEN_CORES = 0.15
"""Cores' worth of time from which on other programs disturb. All ranks wait for the slowest one, so
the number of ranks doesn't matter. On an idle machine it is 0 to 0.05; with 0.3 the medians of mpi
already differ by a factor."""
GOOD = (Answer.NORMAL, Answer.MEASURED)


def judge(row: SizeRow, setup: Setup) -> SizeRow:
    """Return the row with its answer, the reason, and its share of the limit.

    Args:
        row: Row to judge.
        setup: Set-up of its backend, complete.
    """
    limit = setup.limit
    share = None
    if limit is not None and row.busbw_bytes_per_s:
        share = row.busbw_bytes_per_s / limit.bandwidth_bytes_per_s
    answer, why = _answer(row, setup, share)
    return replace(row, answer=answer, why=why, limit_share=share)


def _answer(row: SizeRow, setup: Setup, share: float | None) -> tuple[Answer, str]:
    """Return the answer and its reason, a sentence without a capital."""
    taken = setup.taken_cores or 0.0
    if taken > TAKEN_CORES:
        why = f"other programs took {digits(taken)} cores from the ranks; stop them (see top)"
        return Answer.DISTURBED, why
    if row.interval_s is None:
        return Answer.MEASURED, "there are too few launches for an interval"
    if 0 < setup.cores < setup.ranks_per_host:
        ranks = plural(setup.ranks_per_host, "rank")
        return Answer.MEASURED, f"{ranks} share {setup.cores:g} cores and take turns"
    low, high = row.interval_s
    between = f"the median differs between worlds, from {duration(low)} to {duration(high)}"
    is_wide = (row.spread_share or 0.0) > VARIES_SHARE
    limit = setup.limit
    if share is None or limit is None:
        if is_wide:
            return Answer.VARIES, between
        return Answer.MEASURED, "there is no limit to compare it with"
    if row.steady:  # a narrow interval around the limit doesn't vary
        low = high = row.median_s
    slow_s = _slow_s(row, limit, setup.world_size)
    reached = (
        f"{rate(row.busbw_bytes_per_s)} at {short_size(row.size_bytes)} is {percent(share)} of the "
        f"{rate(limit.bandwidth_bytes_per_s)} of a TCP stream"
    )
    if low > slow_s:
        median = f"a median of at least {duration(low)}, not {duration(slow_s)}, is unusual"
        return Answer.SLOW, f"{reached}; {median}. Try distdemo doctor"
    if high > slow_s or is_wide:
        return Answer.VARIES, between
    return Answer.NORMAL, reached


def _slow_s(row: SizeRow, limit: StreamLimit, n: int) -> float:
    """Return the time above which a median is unusually slow."""
    bytes_s = row.size_bytes * row.busbw_factor / limit.bandwidth_bytes_per_s
    message_s = max(SLOW_LATENCIES * limit.latency_s, MIN_SLOW_MESSAGE_S)
    return 2 * (n - 1) * message_s + bytes_s / SLOW_SHARE


# --------------------------------------------------------------------------------- the whole report


def answer_text(report: BenchReport, half: str = "±") -> tuple[str, bool | None]:
    """Return one sentence per answer, and True if all is well, None if not, False for a failure.

    Args:
        report: A complete or partial report.
        half: Sign before the half-width of an interval.
    """
    if not report.ok:
        return failure_text(report), False
    judged = [row for series in report.series for row in series.rows if row.why]
    sentences = []
    for answer in Answer:
        rows = [row for row in judged if row.answer is answer]
        if rows:
            best = max(rows, key=lambda row: row.busbw_bytes_per_s)
            some = f" ({len(rows)} of {plural(len(judged), 'size')})" * (len(rows) < len(judged))
            sentences.append(f"{answer.capitalize()}{some}: {best.why}.")
    if widths := [row.spread_share for row in judged if row.spread_share is not None]:
        sentences.append(f"Medians within {plus_minus(max(widths), half)}.")
    if checked := sum(row.checked for row in report.rows):
        sentences.append(f"{checked:,} elements verified.")
    total = sum(len(series.spec.sizes_bytes) for series in report.series)
    missing = total - len(report.rows)
    if missing and report.spec.fits_sizes:
        largest = max(row.size_bytes for row in report.rows)
        sentences.append(
            f"Sizes up to {short_size(largest)} fit into {duration(report.spec.budget_s)}; "
            "--budget and -e measure larger ones."
        )
        missing = 0
    if missing:
        what = f"{missing} of {plural(total, 'size')} weren't measured within the budget"
        sentences.append(f"{what}: raise --budget.")
    is_good = not missing and all(row.answer in GOOD for row in judged)
    return " ".join(sentences), is_good or None


def failure_text(report: BenchReport) -> str:
    """Return what is wrong with a report: the first wrong row, or why it is incomplete."""
    names = series_names([series.spec for series in report.series])
    for series in report.series:
        for row in series.rows:
            if row.wrong:
                where = f"{names[series.spec]} is wrong at {short_size(row.size_bytes)}"
                elements = f"{row.wrong:,} of {row.checked:,} elements"
                return f"{where}: {elements} differ from plain arithmetic."
    total = sum(len(series.spec.sizes_bytes) for series in report.series)
    done = f"{len(report.rows)} of {plural(total, 'size')} were measured."
    if report.world is not None and report.world.verdict is not None:
        return f"{report.world.verdict.what} {done}"
    if report.interrupted:
        return f"Interrupted: {done}"
    error = next((series.error for series in report.series if series.error), "")
    return f"{error} {done}".strip()


def disturbance(series: Series) -> str:
    """Return why the times of a series aren't the machine's own, or "" if nothing disturbed it."""
    return next((row.why for row in series.rows if row.answer is Answer.DISTURBED), "")
