"""Views of ``check`` and ``backends``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from rich.text import Text

from distdemo.check.records import (
    BackendEntry,
    BackendList,
    CaseResult,
    CheckReport,
    Status,
)
from distdemo.dtypes import DTYPES, short
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import duration, listing, plural
from distdemo.view.tables import Column, Grid

FAILURES = 20  # maximum shown
LINES = 10  # of details per failure
REASONS = 12  # maximum shown
NAMES = 6  # ops and dtypes listed per reason

STYLES: dict[Status, str] = {
    "passed": colours.RIGHT,
    "failed": colours.WRONG,
    "not run": "yellow",
    "known wrong": "yellow",
    "not supported": colours.QUIET,
}


def check_view(report: CheckReport, sign: Signs) -> Iterator[Block]:
    """Yield the matrix, the reasons and failures, the counts, times and verdict."""
    cases = plural(len(report.cases), "case")
    yield Heading(
        f" {sign.dot} ".join(("check", report.scope, cases, report.backend, report.device))
    )
    # Most releases have no wrong results: omit the status then.
    statuses = [status for status in STYLES if status != "known wrong" or report.of(status)]
    if report.cases:
        yield _matrix(report, sign)
        legend = "  ".join(f"{_mark(status, sign)} {status}" for status in statuses)
        yield Paragraph(f"{legend}  2/12: 2 of 12 cases", colours.QUIET)
    not_tried: tuple[Status, ...] = ("not supported", "known wrong", "not run")
    notes = [line for status in not_tried for line in _reasons(report, status, sign)]
    notes += _failures(report, sign)
    yield from [Paragraph(), *notes, Paragraph()] if notes else []
    ended = [status for status in get_args(Status) if status in statuses]
    counts = ", ".join(f"{report.counts[status.replace(' ', '_')]:,} {status}" for status in ended)
    worlds = f"{plural(report.worlds, 'world')} started, {duration(report.time_s)}"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    footer = f"{counts}.\n{worlds}, seed {report.seed}.\n{versions}".rstrip()
    yield Paragraph(footer, colours.QUIET)
    yield Summary(verdict(report), report.ok)


def _matrix(report: CheckReport, sign: Signs) -> Grid:
    """Return one row per form and one column per dtype: the failures, or else what passed."""
    counted: defaultdict[str, defaultdict[str, Counter[Status]]]
    counted = defaultdict(lambda: defaultdict(Counter))
    for result in report.cases:
        counted[f"{result.op.op} {result.form}"][result.dtype][result.status] += 1
    dtypes = _ordered(dtype for own in counted.values() for dtype in own)

    def tally(counts: Counter[Status]) -> Text:
        bad: list[Status] = [status for status in ("failed", "not run") if counts[status]]
        rest: tuple[Status, ...] = ("passed", "known wrong", "not supported")
        good = next((status for status in rest if counts[status]), rest[-1])
        lines = []
        for status in bad or [good]:
            number, total = counts[status], counts.total()
            part = f" {number}" if number == total else f" {number}/{total}"
            text = _mark(status, sign) + ("" if counts["not supported"] == total else part)
            lines.append(Text(text, style=STYLES[status]))
        return Text("\n").join(lines)

    return Grid(
        [Column(""), *(Column(short(dtype)) for dtype in dtypes)],
        [
            [form, *(tally(own[dtype]) if dtype in own else "" for dtype in dtypes)]
            for form, own in sorted(counted.items())
        ],
        matrix=True,
    )


def _mark(status: Status, sign: Signs) -> str:
    marks: dict[Status, str] = {"passed": sign.right, "failed": sign.wrong, "known wrong": "!"}
    return {**marks, "not supported": sign.none}.get(status, "?")


def _ordered(dtypes: Iterable[str]) -> list[str]:
    """Return the dtypes in the order of ``DTYPES``, then ``none`` and ``object``."""
    order = {name: index for index, name in enumerate(DTYPES)}
    return sorted(set(dtypes), key=lambda name: (order.get(name, len(order)), name))


def _reasons(report: CheckReport, status: Status, sign: Signs) -> Iterator[Paragraph]:
    """Yield one line per reason with its cases, ops and dtypes, most frequent first."""
    groups: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for result in report.of(status):
        groups[one_line(result.why) or "no reason was given"].append(result)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))

    def names(every: Sequence[str]) -> str:
        more = f", {sign.more} {len(every) - NAMES} more" if len(every) > NAMES else ""
        return ", ".join(every[:NAMES]) + more

    for why, results in ranked[:REASONS]:
        forms = sorted({f"{case.op.op}/{case.form}".removesuffix("/tensor") for case in results})
        ops = names(forms if len(forms) <= NAMES else sorted({case.op.op for case in results}))
        if status == "known wrong":
            ops += "; " + ", ".join(dict.fromkeys(result.op.reduce_op or "" for result in results))
        dtypes = names([short(dtype) for dtype in _ordered(case.dtype for case in results)])
        line = f"{_mark(status, sign)} {plural(len(results), 'case')} {status}: {why.rstrip('.')}"
        yield Paragraph(f"{line} ({ops}; {dtypes})", STYLES[status])
    if len(ranked) > REASONS:
        yield Paragraph(
            f"{sign.more} {plural(len(ranked) - REASONS, 'more reason')}", colours.QUIET
        )


def _failures(report: CheckReport, sign: Signs) -> Iterator[Paragraph]:
    """Yield the first failures with their reasons, commands and details."""
    failed = report.of("failed")
    for result in failed[:FAILURES]:
        yield Paragraph(f"{sign.wrong} {result.id}: {one_line(result.why)}", colours.WRONG)
        yield Paragraph(f"  {result.command}", verbatim=True)
        details = [one_line(line) for text in result.details for line in text.splitlines()]
        if len(details) > LINES:
            details[LINES:] = [f"{sign.more} {plural(len(details) - LINES, 'more line')}"]
        if details:
            yield Paragraph("\n".join(f"    {line}" for line in details))
    if len(failed) > FAILURES:
        more = plural(len(failed) - FAILURES, "more failure")
        yield Paragraph(f"{sign.more} {more}; --format json lists all", colours.WRONG)


def verdict(report: CheckReport) -> str:
    """Return the verdict in a sentence or two. A case that did not run never counts as passed."""
    counts = report.counts
    passed = counts["passed"]
    not_run = counts["not_run"]
    known = counts["known_wrong"]
    start = "Interrupted: " if report.interrupted else ""
    if not passed + counts["failed"]:
        return f"{start}No case ran: {reason_none_ran(report)}."
    cases = plural(passed + counts["failed"] + not_run, "case")
    if counts["failed"]:
        rest = f"; {not_run:,} not run" if not_run else ""
        return f"{start}{counts['failed']:,} of {cases} failed{rest}."
    if not_run:
        return f"{start}{not_run:,} of {cases} not run."
    if known and report.strict:
        return f"{start}{known:,} of {plural(passed + known, 'case')} known to be wrong."
    text = f"{start}{cases} passed."
    if known:
        text += f" {known:,} known to be wrong in this torch."
    if counts["not_supported"]:
        text += f" {counts['not_supported']:,} not supported."
    return text


def reason_none_ran(report: CheckReport) -> str:
    """Return the reason no case ran."""
    if not report.cases:
        return "none was selected"
    reasons = [result.why for result in report.of("not run")]
    if reasons:
        return one_line(next(filter(None, reasons), "no reason was given")).rstrip(".")
    if report.of("known wrong"):
        return (
            f"{plural(len(report.cases), 'case')} known to be wrong in this torch, or unsupported"
        )
    number = plural(len(report.cases), "selected case")
    return f"{report.backend} on {report.device} supports none of the {number}"


# ------------------------------------------------------------------------------------ the backends


def backends_view(report: BackendList, sign: Signs) -> Iterator[Block]:
    """Yield a table of the backends, with installation instructions for missing ones."""
    heads = ("Backend", "Available", "Devices", "Version", "Result")
    grid = Grid([Column(name, folds=name == "Result") for name in heads])
    for entry in report.backends:
        result = f"{entry.summary} {entry.tried}".strip(" .")
        if entry.missing:
            result = f"{entry.missing} {entry.get}".strip()
        grid.rows.append(
            [
                Text(entry.name, style="bold"),
                _available(entry, sign),
                ", ".join(entry.devices),
                entry.version or Text(sign.none, style=colours.QUIET),
                result,
            ]
        )
    yield grid
    works = [entry.name for entry in report.backends if entry.works]
    fails = [entry.name for entry in report.backends if entry.works is False]
    good = f"{listing(works)} {'works' if len(works) == 1 else 'work'}." if works else ""
    bad = f"{listing(fails)} {'fails' if len(fails) == 1 else 'fail'}." if fails else ""
    yield Summary(f"{good} {bad}".strip() or "No backend is available.", report.ok)


def _available(entry: BackendEntry, sign: Signs) -> Text:
    if entry.missing:
        return Text(f"{sign.none} no", style=colours.QUIET)
    if entry.works is None:
        return Text("yes, not tried")
    if entry.works:
        return Text(f"{sign.right} works", style=colours.RIGHT)
    return Text(f"{sign.wrong} fails", style=colours.WRONG)
