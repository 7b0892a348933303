"""Display of ``check`` and ``backends``."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
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
from distdemo.view.console import Signs, signs
from distdemo.view.foreign import one_line
from distdemo.view.format import duration, listing, plural
from distdemo.view.tables import Column, Grid, fitting, frame, heading, widest

PARTS = 4  # maximum number of tables that a wide one is split into
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
Record = CheckReport | BackendList
Cells = Mapping[str, Mapping[str, Text]]
"""Text per row (``all_gather single``) and dtype."""


def table(record: Record, console: Console) -> Group:
    """Return the whole report."""
    if isinstance(record, BackendList):
        return _backends(record, console)
    return _check(record, console)


def summary(record: Record, console: Console) -> Text:
    """Return the verdict in one line."""
    sign, style = ("right", colours.RIGHT) if record.ok else ("wrong", colours.WRONG)
    return Text(f"{getattr(signs(console), sign)} {verdict(record)}", style=style)


def _junit(report: CheckReport) -> str:
    from distdemo.check.ci import junit_xml

    return junit_xml(report)


FILES = {".xml": _junit}


def verdict(record: Record) -> str:
    """Return the verdict in a sentence or two. A case that did not run never counts as passed."""
    if isinstance(record, BackendList):
        works = [each.name for each in record.backends if each.works]
        fails = [each.name for each in record.backends if each.works is False]
        good = f"{listing(works)} {'works' if len(works) == 1 else 'work'}." if works else ""
        bad = f"{listing(fails)} {'fails' if len(fails) == 1 else 'fail'}." if fails else ""
        return f"{good} {bad}".strip() or "No backend is available."
    counts = record.counts
    passed, failed, left = counts["passed"], counts["failed"], counts["not_run"]
    start = "Interrupted: " if record.interrupted else ""
    if not passed + failed:
        return f"{start}No case ran: {reason_none_ran(record)}."
    due = plural(passed + failed + left, "case")
    if failed:
        return f"{start}{failed:,} of {due} failed{f'; {left:,} not run' if left else ''}."
    if left:
        return f"{start}{left:,} of {due} not run."
    known, skipped = counts["known_wrong"], counts["not_supported"]
    if known and record.strict:
        return f"{start}{known:,} of {plural(passed + known, 'case')} known to be wrong."
    text = f"{start}{due} passed."
    text += f" {known:,} known to be wrong in this torch." if known else ""
    return text + (f" {skipped:,} not supported." if skipped else "")


def reason_none_ran(report: CheckReport) -> str:
    """Return the reason no case ran."""
    if not report.cases:
        return "none was selected"
    reasons = [result.why for result in report.of("not run")]
    if not reasons and report.of("known wrong"):
        return (
            f"{plural(len(report.cases), 'case')} known to be wrong in this torch, or unsupported"
        )
    if not reasons:
        number = plural(len(report.cases), "selected case")
        return f"{report.backend} on {report.device} supports none of the {number}"
    return one_line(next(filter(None, reasons), "no reason was given")).rstrip(".")


# ------------------------------------------------------------------------------------- the check


def _check(report: CheckReport, console: Console) -> Group:
    """Return the matrix, the reasons and failures, the counts, times and verdict."""
    sign = signs(console)
    cases = plural(len(report.cases), "case")
    title = f" {sign.dot} ".join(("check", report.scope, cases, report.backend, report.device))
    parts: list[RenderableType] = [heading(title)]
    # Most releases have no wrong results: omit the status then.
    statuses = [each for each in STYLES if each != "known wrong" or report.of(each)]
    if report.cases:
        parts += _by_dtype(_tallies(report, sign), console)
        legend = "  ".join(f"{_mark(status, sign)} {status}" for status in statuses)
        parts.append(Text(f"{legend}  2/12: 2 of 12 cases", style=colours.QUIET))
    not_tried: tuple[Status, ...] = ("not supported", "known wrong", "not run")
    notes = [line for status in not_tried for line in _reasons(report, status, sign)]
    notes += _failures(report, console)
    parts += [Text(), *notes, Text()] if notes else []
    ended = [status for status in get_args(Status) if status in statuses]
    counts = ", ".join(f"{report.counts[each.replace(' ', '_')]:,} {each}" for each in ended)
    worlds = f"{plural(report.worlds, 'world')} started, {duration(report.time_s)}"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    footer = f"{counts}.\n{worlds}, seed {report.seed}.\n{versions}".rstrip()
    return Group(*parts, Text(footer, style=colours.QUIET), summary(report, console))


def _tallies(report: CheckReport, sign: Signs) -> Cells:
    """Return the failures of each form and dtype, or else the passed cases."""
    counted: defaultdict[str, defaultdict[str, Counter[Status]]]
    counted = defaultdict(lambda: defaultdict(Counter))
    for result in report.cases:
        counted[f"{result.op} {result.form}"][result.dtype][result.status] += 1

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

    return {
        row: {dtype: tally(counts) for dtype, counts in own.items()}
        for row, own in sorted(counted.items())
    }


def _by_dtype(cells: Cells, console: Console) -> Iterator[RenderableType]:
    """Yield a table with one column per dtype, or several tables or a list if it is too wide."""
    dtypes = _ordered(dtype for own in cells.values() for dtype in own)
    for parts in range(1, PARTS + 1):
        size = -(-len(dtypes) // parts)
        tables = [
            _dtype_table(cells, dtypes[start : start + size])
            for start in range(0, len(dtypes), size)
        ]
        if all(widest(console, each) <= console.width for each in tables):
            for index, each in enumerate(tables):
                yield from [Text()] if index else []
                yield each
            return
    for row, own in cells.items():
        yield Text(row, style="bold")
        same: defaultdict[str, list[str]] = defaultdict(list)
        for dtype in (each for each in dtypes if each in own):
            same[own[dtype].plain].append(dtype)
        for names in same.values():
            line = Text(", ").join(own[names[0]].split("\n"))
            line.append(f": {', '.join(map(short, names))}")
            yield Padding(line, (0, 0, 0, 2))


def _dtype_table(cells: Cells, dtypes: Sequence[str]) -> Table:
    """Return one table, without rows that are empty for these dtypes."""
    table = frame()
    # No lines between the columns, so that many of them fit into 80 characters.
    table.box, table.show_edge, table.pad_edge = box.SIMPLE_HEAD, False, False
    table.padding = (0, 1, 0, 0)
    table.add_column("", no_wrap=True)
    for dtype in dtypes:
        table.add_column(short(dtype), no_wrap=True)
    for row, own in cells.items():
        if own.keys() & set(dtypes):
            table.add_row(row, *(own.get(dtype, "") for dtype in dtypes))
    return table


def _mark(status: Status, sign: Signs) -> str:
    marks: dict[Status, str] = {"passed": sign.right, "failed": sign.wrong, "known wrong": "!"}
    return {**marks, "not supported": sign.none}.get(status, "?")


def _ordered(dtypes: Iterable[str]) -> list[str]:
    """Return the dtypes in the order of ``DTYPES``, then ``none`` and ``object``."""
    order = {name: index for index, name in enumerate(DTYPES)}
    return sorted(set(dtypes), key=lambda name: (order.get(name, len(order)), name))


def _reasons(report: CheckReport, status: Status, sign: Signs) -> Iterator[RenderableType]:
    """Yield one line per reason with its cases, ops and dtypes, most frequent first."""
    groups: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for result in report.of(status):
        groups[one_line(result.why) or "no reason was given"].append(result)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))

    def names(every: Sequence[str]) -> str:
        more = f", {sign.more} {len(every) - NAMES} more" if len(every) > NAMES else ""
        return ", ".join(every[:NAMES]) + more

    for why, results in ranked[:REASONS]:
        forms = sorted({f"{each.op}/{each.form}".removesuffix("/tensor") for each in results})
        ops = names(forms if len(forms) <= NAMES else sorted({each.op for each in results}))
        if status == "known wrong":
            ops += "; " + ", ".join(dict.fromkeys(result.reduce_op for result in results))
        dtypes = names([short(dtype) for dtype in _ordered(each.dtype for each in results)])
        line = f"{_mark(status, sign)} {plural(len(results), 'case')} {status}: {why.rstrip('.')}"
        yield Text(f"{line} ({ops}; {dtypes})", style=STYLES[status])
    if len(ranked) > REASONS:
        yield Text(f"{sign.more} {plural(len(ranked) - REASONS, 'more reason')}", colours.QUIET)


def _failures(report: CheckReport, console: Console) -> Iterator[RenderableType]:
    """Yield the first failures with their reasons, commands and details."""
    sign, failed = signs(console), report.of("failed")
    for result in failed[:FAILURES]:
        yield Text(f"{sign.wrong} {result.id}: {one_line(result.why)}", style=colours.WRONG)
        yield Padding(Text(_wrapped(result.command, console.width - 2)), (0, 0, 0, 2))
        details = [one_line(line) for text in result.details for line in text.splitlines()]
        if len(details) > LINES:
            details[LINES:] = [f"{sign.more} {plural(len(details) - LINES, 'more line')}"]
        yield from (Padding(Text(line), (0, 0, 0, 4)) for line in details)
    if len(failed) > FAILURES:
        more = plural(len(failed) - FAILURES, "more failure")
        yield Text(f"{sign.more} {more}; --format json lists all", style=colours.WRONG)


def _wrapped(command: str, width: int) -> str:
    """Wrap a command into lines that can be pasted into a shell."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(lines[-1]) + 1 + len(word) + 2 > width:
            lines[-1] += " \\"
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


# ------------------------------------------------------------------------------------ the backends


def _backends(listed: BackendList, console: Console) -> Group:
    """Return a table of the backends, with installation instructions for missing ones."""
    sign = signs(console)
    heads = ("Backend", "Available", "Devices", "Version", "Result")
    grid = Grid([Column(name, folds=name == "Result") for name in heads])
    for each in listed.backends:
        found = f"{each.missing} {each.get}" if each.missing else f"{each.summary} {each.tried}."
        if each.implementation:
            found = f"{each.name} means {each.implementation} in this torch. {found}"
        grid.rows.append(
            [
                Text(each.name, style="bold"),
                _available(each, sign),
                ", ".join(each.devices),
                each.version or Text(sign.none, style=colours.QUIET),
                found.strip() if each.missing else found.strip(" ."),
            ]
        )
    return Group(fitting(console, lambda _: grid))


def _available(entry: BackendEntry, sign: Signs) -> Text:
    if entry.missing:
        return Text(f"{sign.none} no", style=colours.QUIET)
    if entry.works is None:
        return Text("yes, not tried")
    if entry.works:
        return Text(f"{sign.right} works", style=colours.RIGHT)
    return Text(f"{sign.wrong} fails", style=colours.WRONG)
