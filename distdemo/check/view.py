"""Views of ``check`` and ``backends``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from rich.text import Text

from distdemo.check.records import (
    BackendEntry,
    BackendList,
    CaseResult,
    CheckReport,
    Status,
)
from distdemo.dtypes import short
from distdemo.versions import untried
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import duration, listing, plural
from distdemo.view.tables import Column, Grid

FAILURES = 20  # failures shown
LINES = 10  # of details per failure
NAMES = 6  # ops and dtypes listed per reason

STYLES: dict[Status, str] = {
    "passed": colours.RIGHT,
    "failed": colours.WRONG,
    "not run": colours.UNSURE,
    "known wrong": colours.UNSURE,
    "unavailable": colours.UNSURE,
    "not supported": colours.QUIET,
}


def check_view(report: CheckReport, sign: Signs) -> Iterator[Block]:
    """Yield a table, the reasons and failures, the times and the verdict."""
    cases = plural(len(report.cases), "case")
    if clause := untried(report.versions.get("torch", "")):
        yield Paragraph(f"! {clause}.", colours.UNSURE)
    yield Heading(
        f" {sign.dot} ".join(("check", report.scope, cases, report.backend, report.device))
    )
    if report.cases:
        yield _table(report)
    yield Paragraph()
    for status in ("not supported", "unavailable", "known wrong", "not run"):
        yield from _reasons(report, status, sign)
    yield from _failures(report, sign)
    worlds = f"{plural(report.worlds, 'world')} started, {duration(report.time_s)}"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield Paragraph(f"{worlds}.\n{versions}".rstrip(), colours.QUIET)
    is_wrong = bool(report.of("failed")) or (report.strict and not report.complete)
    yield Summary(verdict(report), False if is_wrong else report.complete or None, "!")


def _table(report: CheckReport) -> Grid:
    """Return one row per form with its number of cases by status."""
    statuses = [status for status in STYLES if report.of(status)]
    counted: defaultdict[str, Counter[Status]] = defaultdict(Counter)
    for case in report.cases:
        counted[f"{case.op.op} {case.form}"][case.status] += 1
    grid = Grid([Column("Form"), *(Column(status, right=True) for status in statuses)])
    for form, counts in sorted(counted.items()):
        numbers = [f"{counts[status]:,}" if counts[status] else "" for status in statuses]
        cells = [Text(n, STYLES[status]) for n, status in zip(numbers, statuses, strict=True)]
        grid.rows.append([form, *cells])
    return grid


def _mark(status: Status, sign: Signs) -> str:
    return sign.none if status == "not supported" else "!"


def _reasons(report: CheckReport, status: Status, sign: Signs) -> Iterator[Paragraph]:
    """Yield one line per reason with its cases, ops and dtypes, most frequent first."""
    groups: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for case in report.of(status):
        groups[one_line(case.why)].append(case)
    for why, cases in sorted(groups.items(), key=lambda item: -len(item[1])):
        forms = _names("forms", (_form(case) for case in cases))
        dtypes = _names("dtypes", (short(case.dtype) for case in cases))
        line = f"{_mark(status, sign)} {plural(len(cases), 'case')} {status}: {why.rstrip('.')}"
        yield Paragraph(f"{line} ({forms}; {dtypes})", STYLES[status])


def _form(case: CaseResult) -> str:
    return case.op.op if case.form == "tensor" else f"{case.op.op}/{case.form}"


def _names(kind: str, names: Iterable[str]) -> str:
    """Return these names, each once; of many, the number and what they are."""
    every = sorted(set(names))
    return ", ".join(every) if len(every) <= NAMES else f"{len(every)} {kind}"


def _failures(report: CheckReport, sign: Signs) -> Iterator[Paragraph]:
    """Yield the first failures with their reasons, commands and details."""
    failed = report.of("failed")
    for case in failed[:FAILURES]:
        yield Paragraph(f"{sign.wrong} {case.id}: {one_line(case.why)}", colours.WRONG)
        yield Paragraph(f"  {report.command(case)}", verbatim=True)
        lines = [one_line(line) for text in case.details for line in text.splitlines()]
        if lines:
            yield Paragraph("\n".join(f"    {line}" for line in lines[:LINES]))
    if len(failed) > FAILURES:
        more = plural(len(failed) - FAILURES, "more failure")
        yield Paragraph(f"{sign.more} {more}; --format json lists all", colours.WRONG)


def verdict(report: CheckReport) -> str:
    """Return the verdict in a sentence or two. A case that did not run never counts as passed."""
    counts = report.counts
    not_run = counts["not_run"]
    ran = counts["passed"] + counts["failed"]
    if not ran:
        why = next((case.why for case in report.cases if case.why), "none was selected")
        return f"No case ran: {one_line(why).rstrip('.')}."
    cases = plural(ran + not_run, "case")
    if counts["failed"]:
        rest = f"; {not_run:,} not run" if not_run else ""
        return f"{counts['failed']:,} of {cases} failed{rest}."
    if not_run:
        return f"{not_run:,} of {cases} not run."
    text = f"{cases} passed."
    if counts["unavailable"]:
        text += f" {counts['unavailable']:,} not run for lack of GPUs."
    if counts["known_wrong"]:
        text += f" {counts['known_wrong']:,} known to be wrong in this torch."
    if counts["not_supported"]:
        text += f" {counts['not_supported']:,} not supported."
    return text


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
    untried = [entry.name for entry in report.backends if not entry.missing and entry.works is None]
    other = f"{listing(untried)} {'was' if len(untried) == 1 else 'were'} not tried."
    parts = filter(None, (good, bad, other if untried else ""))
    text = " ".join(parts) or "No backend is available."
    yield Summary(text, False if fails else report.complete or None, "!")


def _available(entry: BackendEntry, sign: Signs) -> Text:
    if entry.missing:
        return Text(f"{sign.none} no", style=colours.QUIET)
    if entry.works is None:
        return Text("yes, not tried")
    if entry.works:
        return Text(f"{sign.right} works", style=colours.RIGHT)
    return Text(f"{sign.wrong} fails", style=colours.WRONG)
