"""What came of a measurement, in one line, and the average as nccl-tests ends with it."""

from __future__ import annotations

from statistics import fmean

from rich.text import Text

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_limits import a_limit
from distdemo.bench.view_names import labels, measured, with_sizes
from distdemo.bench.view_numbers import percent, rate, rate_text, short_size
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.numbers import plural

FEW = 8  # series whose averages are told one by one


def verdict_line(report: BenchReport, sign: Signs) -> Text:
    """Whether every element was right, how many sizes are unsteady, and the best bandwidths."""
    if report.ok:
        return Text(f"{sign.right} {verdict(report)}", style=colours.RIGHT)
    return Text(f"{sign.wrong} {verdict(report)}", style=colours.WRONG)


def verdict(report: BenchReport) -> str:
    """The same without its sign."""
    trouble = _trouble(report)
    rows = sum(len(series.rows) for series in report.series)
    if not rows:
        return trouble or f"Nothing was measured: {why_none(report)}."
    wrong = f"{plural(report.wrong, 'wrong element')}{_checked(report)}"
    sizes = f"{plural(rows, 'size')}{_in_series(report)}"
    lead = f"{trouble} " if trouble else ""
    unsteady = f"{len(report.unsteady)} of {rows} not steady" if report.unsteady else ""
    return "; ".join(filter(None, (f"{lead}{sizes}, {wrong}", unsteady, _bests(report)))) + "."


def why_none(report: BenchReport) -> str:
    """Why there is no row at all, as the end of a sentence."""
    reasons = [each.error or each.spec.refused for each in report.series]
    return next(filter(None, reasons), "no reason was given").rstrip(".")


def _trouble(report: BenchReport) -> str:
    """What kept it from being whole, in sentences; empty if nothing did."""
    parts = []
    if report.failure is not None and report.failure.verdict is not None:
        parts.append(report.failure.verdict.what)
    elif not report.interrupted and any(series.error for series in report.series):
        parts.append(_errors(report))
    if report.interrupted and measured(report):
        parts.append("Interrupted; this was measured by then:")
    elif report.interrupted:
        parts.append("Interrupted before any size was timed.")
    elif parts and measured(report):
        parts.append("Measured by then:")
    return " ".join(parts)


def _errors(report: BenchReport) -> str:
    named = zip(labels(report.series), report.series, strict=True)
    told = [f"{name}: {each.error.rstrip('.')}" for name, each in named if each.error]
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return f"{told[0]}{more}."


def _checked(report: BenchReport) -> str:
    checked = sum(row.checked for series in report.series for row in series.rows)
    return f" of {checked:,}" if checked else ""


def _in_series(report: BenchReport) -> str:
    count = len(measured(report))
    return f" in {count} series" if count > 1 else ""


def _bests(report: BenchReport) -> str:
    """The best busbw of each backend; empty where nothing crosses a bus."""
    found: dict[str, tuple[Series, Row]] = {}
    for series in report.series:
        for row in series.rows:
            before = found.get(series.spec.backend)
            if row.busbw > (before[1].busbw if before else 0):
                found[series.spec.backend] = series, row
    told = " and ".join(_best(report, *each) for each in found.values())
    return f"busbw up to {told}" if told else ""


def _best(report: BenchReport, series: Series, row: Row) -> str:
    """``3.90 GB/s at 4 MiB (62% of a TCP stream)``, of several series with the one's name."""
    names = dict(zip(map(id, report.series), labels(report.series), strict=True))
    who = f", {names[id(series)]}" if len(measured(report)) > 1 else ""
    text = f"{rate_text(row.busbw)} at {short_size(row.size)}{who}"
    return f"{text}{_share(report, series, row)}"


def _share(report: BenchReport, series: Series, row: Row) -> str:
    share = row.judgement.share if row.judgement else None
    setup = report.setups.get(series.spec.backend)
    if share is None or setup is None or setup.bound is None:
        return ""
    return f" ({percent(share)} of {a_limit(setup.bound.kind)})"


def average_line(report: BenchReport) -> Text | None:
    """The average busbw over the sizes: of each series, of many that of all; None of no busbw."""
    found = measured(with_sizes(report))
    if not any(row.busbw for series in found for row in series.rows):
        return None
    if len(found) == 1 or len(found) > FEW:
        whole = _average([row for series in found for row in series.rows])
        return Text(f"Average busbw: {whole}", style=colours.QUIET)
    names = dict(zip((s.spec for s in report.series), labels(report.series), strict=True))
    told = ", ".join(f"{names[each.spec]} {_average(each.rows)}" for each in found)
    return Text(f"Average busbw: {told}", style=colours.QUIET)


def _average(rows: list[Row] | tuple[Row, ...]) -> str:
    return f"{rate(fmean(row.busbw for row in rows))} GB/s"
