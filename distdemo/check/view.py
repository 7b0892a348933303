"""A check, the backends that are here and the map of one as people read them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from distdemo.backends.capabilities import CapabilityMap
from distdemo.check.records import (
    BackendEntry,
    BackendList,
    CaseResult,
    CheckReport,
    MapReport,
    Status,
)
from distdemo.dtypes import DTYPES, short
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import duration, listing, plural
from distdemo.view.tables import Column, Grid, fitting, frame, heading, widest

PARTS = 4  # tables below each other at most that a map is cut into
GRIDS = 3  # dtypes that don't fit go into a further grid; more than these read worse than a list
FAILURES = 20  # told one by one
LINES = 10  # of one failure's details
REASONS = 12  # told one by one
NAMES = 6  # of ops, and of dtypes, to one reason

Cells = Mapping[tuple[str, str], Counter[Status]]
"""How many cases ended how, by row (``all_gather single``) and dtype."""

# A word of a command line, with the blanks that its quotes keep.
_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")


Record = CheckReport | BackendList | MapReport


def table(record: Record, console: Console) -> Group:
    """The whole report."""
    if isinstance(record, BackendList):
        return _backends(record, console)
    return _map(record, console) if isinstance(record, MapReport) else _check(record, console)


def summary(record: Record, console: Console) -> Text:
    """Whether all is well, in one line."""
    told = verdict(record)
    if record.ok:
        return Text(f"{signs(console).right} {told}", style=colours.RIGHT)
    return Text(f"{signs(console).wrong} {told}", style=colours.WRONG)


def _junit(report: CheckReport) -> str:
    from distdemo.check.ci import junit_xml

    return junit_xml(report)


FILES = {".xml": _junit}


def verdict(record: Record) -> str:
    """Whether all is well, in a sentence or two; a case that did not run is never a pass."""
    if isinstance(record, MapReport):
        told = f"{plural(record.tried, 'combination')} tried in {duration(record.time_s)}"
        return f"{told}, in {plural(record.worlds, 'world')}."
    if isinstance(record, BackendList):
        works = [each.name for each in record.backends if each.works]
        fails = [each.name for each in record.backends if each.works is False]
        told = f"{listing(works)} {'works' if len(works) == 1 else 'work'}." if works else ""
        bad = f"{listing(fails)} {'fails' if len(fails) == 1 else 'fail'}." if fails else ""
        return f"{told} {bad}".strip() or "No backend is here."
    counts = record.counts
    passed, failed, left = counts["passed"], counts["failed"], counts["not_run"]
    start = "Interrupted: " if record.interrupted else ""
    if not passed + failed:
        return f"{start}No case ran: {why_none(record)}."
    due = plural(passed + failed + left, "case")
    if failed:
        return f"{start}{failed:,} of {due} failed{f'; {left:,} not run' if left else ''}."
    if left:
        return f"{start}{left:,} of {due} not run."
    skipped = counts["not_supported"]
    return f"{start}{due} passed." + (f" {skipped:,} not supported." if skipped else "")


def _check(report: CheckReport, console: Console) -> Group:
    """The matrix under its heading; the reasons and failures; counts, time and verdict."""
    sign = signs(console)
    cases = plural(len(report.cases), "case")
    title = f" {sign.dot} ".join(("check", report.scope, cases, report.backend, report.device))
    parts: list[RenderableType] = [heading(title), *_matrix(report, console)]
    below = [*_reasons(report, "not supported", sign), *_reasons(report, "not run", sign)]
    below += _failures(report, console)
    parts += [Text(), *below, Text()] if below else []
    parts += [Text(_footer(report), style=colours.QUIET), summary(report, console)]
    return Group(*parts)


def why_none(report: CheckReport) -> str:
    """Why no case ran."""
    if not report.cases:
        return "none was selected"
    reasons = [result.why for result in report.of("not run")]
    if not reasons:
        number = plural(len(report.cases), "selected case")
        return f"{report.backend} on {report.device} supports none of the {number}"
    return _sentence(next(filter(None, reasons), "")).rstrip(".") or "no reason was given"


# ------------------------------------------------------------------------------------ the matrix


def _matrix(report: CheckReport, console: Console) -> Iterator[RenderableType]:
    """A grid, or a few one below the other; a list where there would be too many of them."""
    cells: defaultdict[tuple[str, str], Counter[Status]] = defaultdict(Counter)
    for result in report.cases:
        cells[f"{result.op} {result.form}", result.dtype][result.status] += 1
    sign = signs(console)
    if not cells:
        return
    chunks = _chunks(cells, sign, console.width)
    for place, chunk in enumerate(chunks):
        yield from [Text()] if place else []
        yield _grid(cells, chunk, sign)
    if not chunks:
        yield from _list(cells, sign)
    yield Text(_legend(sign), style=colours.QUIET)


def _chunks(cells: Cells, sign: Signs, width: int) -> list[list[str]]:
    """The dtypes of each grid, so that every grid fits; none if it would take too many grids."""
    room = width - max(len(row) for row, _ in cells)
    chunks: list[list[str]] = [[]]
    used = 0
    for dtype in _ordered(dtype for _, dtype in cells):
        column = _column_width(cells, dtype, sign)
        if column > room:
            return []
        if used + column > room:
            chunks.append([])
            used = 0
        chunks[-1].append(dtype)
        used += column
    return chunks if len(chunks) <= GRIDS else []


def _column_width(cells: Cells, dtype: str, sign: Signs) -> int:
    lines = [short(dtype)]
    for (_, other), counts in cells.items():
        if other == dtype:
            lines += _cell(counts, sign).plain.splitlines()
    return max(map(len, lines)) + 2  # the gap between two columns


def _grid(cells: Cells, dtypes: Sequence[str], sign: Signs) -> Table:
    """One grid; rows that have no case of these dtypes are left out."""
    table = frame()
    # No lines between the columns: there are many of them, and 80 characters.
    table.box, table.show_edge, table.pad_edge = box.SIMPLE_HEAD, False, False
    table.padding = (0, 1, 0, 0)
    table.add_column("", no_wrap=True)
    for dtype in dtypes:
        table.add_column(short(dtype), no_wrap=True)
    rows = sorted({row for row, dtype in cells if dtype in dtypes})
    for row in rows:
        table.add_row(row, *(_cell(cells.get((row, dtype)), sign) for dtype in dtypes))
    return table


def _cell(counts: Counter[Status] | None, sign: Signs) -> Text:
    """What is wrong if anything is, else what passed, else that nothing is supported."""
    if not counts:
        return Text()
    bad: list[Status] = [status for status in ("failed", "not run") if counts[status]]
    good: Status = "passed" if counts["passed"] else "not supported"
    return Text("\n").join(
        Text(_tally(counts, status, sign), style=_STYLES[status]) for status in bad or [good]
    )


def _tally(counts: Counter[Status], status: Status, sign: Signs) -> str:
    """The sign and how many: all of 12 are ``12``, a part of them is ``2/12``."""
    number, total = counts[status], sum(counts.values())
    if number == total:
        return mark(status, sign) + ("" if status == "not supported" else f" {number}")
    return f"{mark(status, sign)} {number}/{total}"


def _list(cells: Cells, sign: Signs) -> Iterator[RenderableType]:
    """A paragraph to each row: for each way of ending and each count, the dtypes."""
    dtypes = _ordered(dtype for _, dtype in cells)
    for row in sorted({row for row, _ in cells}):
        yield Text(row, style="bold")
        own = [(dtype, cells[row, dtype]) for dtype in dtypes if (row, dtype) in cells]
        for status, style in _STYLES.items():
            tallies: defaultdict[str, list[str]] = defaultdict(list)
            for dtype, counts in own:
                if counts[status]:
                    tallies[_tally(counts, status, sign)].append(short(dtype))
            for tally, names in tallies.items():
                yield _indented(Text(f"{tally}: {', '.join(names)}", style=style), 2)


def _legend(sign: Signs) -> str:
    signs_told = "  ".join(f"{mark(status, sign)} {status}" for status in _STYLES)
    return f"{signs_told}  2/12: 2 of 12 cases"


_STYLES: dict[Status, str] = {
    "passed": colours.RIGHT,
    "failed": colours.WRONG,
    "not run": "yellow",
    "not supported": colours.QUIET,
}


def mark(status: Status, sign: Signs) -> str:
    """The sign of a way of ending."""
    return {"passed": sign.right, "failed": sign.wrong, "not supported": sign.none}.get(status, "?")


def _ordered(dtypes: Iterable[str]) -> list[str]:
    """The dtypes in the order of their table; what is no element type comes last."""
    order = {name: place for place, name in enumerate(DTYPES)}
    return sorted(set(dtypes), key=lambda name: (order.get(name, len(order)), name))


# ------------------------------------------------------------------------------- under the matrix


def _reasons(report: CheckReport, status: Status, sign: Signs) -> Iterator[RenderableType]:
    """A line for each reason: how many cases, of which ops and dtypes; the commonest first."""
    groups: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for result in report.of(status):
        groups[_sentence(result.why) or "no reason was given"].append(result)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    for why, results in ranked[:REASONS]:
        ops = _names(sorted({result.op for result in results}), sign)
        dtypes = _names([short(dtype) for dtype in _ordered(r.dtype for r in results)], sign)
        line = f"{mark(status, sign)} {plural(len(results), 'case')} {status}: {why.rstrip('.')}"
        yield Text(f"{line} ({ops}; {dtypes})", style=_STYLES[status])
    if len(ranked) > REASONS:
        yield Text(f"{sign.more} {plural(len(ranked) - REASONS, 'more reason')}", colours.QUIET)


def _names(names: Sequence[str], sign: Signs) -> str:
    more = f", {sign.more} {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more


def _failures(report: CheckReport, console: Console) -> Iterator[RenderableType]:
    """For each of the first failures: what and why, the command that repeats it, the details."""
    sign = signs(console)
    failed = report.of("failed")
    for result in failed[:FAILURES]:
        yield Text(f"{sign.wrong} {result.id}: {_sentence(result.why)}", style=colours.WRONG)
        if result.command:
            yield _indented(Text(_command(result.command, console.width - 2)), 2)
        details = [_printable(line) for text in result.details for line in text.splitlines()]
        if len(details) > LINES:
            details[LINES:] = [f"{sign.more} {plural(len(details) - LINES, 'more line')}"]
        yield from (_indented(Text(line), 4) for line in details)
    if len(failed) > FAILURES:
        more = plural(len(failed) - FAILURES, "more failure")
        yield Text(f"{sign.more} {more}; --format json lists all", style=colours.WRONG)


def _indented(text: Text, columns: int) -> Padding:
    return Padding(text, (0, 0, 0, columns))


def _command(command: str, width: int) -> str:
    """The command over as many lines as it needs, still right when it is copied to a shell."""
    words = _WORD.findall(command)
    if " ".join(words) != command:  # quoted in a way that we don't read: better left alone
        return _printable(command)
    lines = [""]
    for word in map(_printable, words):
        if lines[-1] and len(lines[-1]) + 1 + len(word) + 2 > width:
            lines[-1] += " \\"
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def _footer(report: CheckReport) -> str:
    statuses = ("passed", "failed", "not supported", "not run")
    counts = ", ".join(f"{report.counts[each.replace(' ', '_')]:,} {each}" for each in statuses)
    worlds = plural(report.worlds, "world")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    lines = [f"{counts}.", f"{worlds} started, {duration(report.time_s)}, seed {report.seed}."]
    return "\n".join([*lines, versions] if versions else lines)


def _sentence(text: str) -> str:
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    """The text without what would move the cursor or colour the terminal."""
    return "".join(char for char in text.expandtabs() if char.isprintable())


# ------------------------------------------------------------------------------------ the backends


def _backends(listed: BackendList, console: Console) -> Group:
    """Which backends are here, why not, and how to get them."""
    sign = signs(console)
    heads = ("Backend", "Here", "Devices", "Version", "What was found")
    grid = Grid([Column(name, folds=name == "What was found") for name in heads])
    for each in listed.backends:
        grid.rows.append(
            [
                Text(each.name, style="bold"),
                _here(each, sign),
                ", ".join(each.devices),
                each.version or Text(sign.none, style=colours.QUIET),
                _found(each),
            ]
        )
    hint = "distdemo backends --probe gloo tries everything that one can do."
    return Group(fitting(console, lambda _: grid), Text(hint, style=colours.QUIET))


def _here(entry: BackendEntry, sign: Signs) -> Text:
    if entry.missing:
        return Text(f"{sign.none} no", style=colours.QUIET)
    if entry.works is None:
        return Text("yes, not tried")
    if entry.works:
        return Text(f"{sign.right} works", style=colours.RIGHT)
    return Text(f"{sign.wrong} fails", style=colours.WRONG)


def _found(entry: BackendEntry) -> Text:
    if entry.missing:
        return Text(f"{entry.missing} {entry.get}".strip())
    return Text(f"{entry.summary} {entry.tried}.".strip(" ."))


def _map(report: MapReport, console: Console) -> Group:
    """The map as a grid, what the signs mean, and where the documentation says otherwise."""
    found, sign = report.map, signs(console)
    parts: list[RenderableType] = [
        heading(f"{found.backend} {sign.dot} torch {found.torch} {sign.dot} {found.device}"),
        *_map_grids(found, console, sign),
    ]
    parts += _map_legend(found, sign)
    for kind, forms in found.shapes.items():
        for name, finding in forms.items():
            parts.append(Text(f"{name} with {kind} tensors: {finding}.", style=colours.QUIET))
    if report.documentation_differs:
        parts.append(heading("Where PyTorch's documentation says otherwise"))
        parts += [Text(line) for line in report.documentation_differs]
    parts += _against_the_built_in(report, sign)
    parts.append(summary(report, console))
    return Group(*parts)


def _against_the_built_in(report: MapReport, sign: Signs) -> Iterator[RenderableType]:
    """Whether the map that the commands ask beforehand says the same."""
    if not report.built_in_torch:
        yield Text("There is no built-in map of this backend: --output FILE writes one.")
    elif not report.built_in_differs:
        same = f"{sign.right} The built-in map, of torch {report.built_in_torch}, says the same."
        yield Text(same, style=colours.RIGHT)
    else:
        yield heading(f"Where the built-in map, of torch {report.built_in_torch}, says otherwise")
        yield from (Text(line) for line in report.built_in_differs)


def _map_grids(found: CapabilityMap, console: Console, sign: Signs) -> list[RenderableType]:
    """The map in as few tables below each other as fit the console's width."""
    places = list(range(len(found.dtypes)))
    for parts in range(1, PARTS + 1):
        size = -(-len(places) // parts)
        grids = [
            _map_grid(found, places[start : start + size], sign)
            for start in range(0, len(places), size)
        ]
        if all(widest(console, grid.table()) <= console.width for grid in grids):
            return [grid.table() for grid in grids]
    return list(_lines(found))


def _map_grid(found: CapabilityMap, places: Sequence[int], sign: Signs) -> Grid:
    grid = Grid([Column("Operation"), *(Column(short(found.dtypes[at])) for at in places)])
    for name, row in found.rows.items():
        cells = [_sign(row[at], sign) for at in places]
        grid.rows.append([_name(name), *cells])
    return grid


def _lines(found: CapabilityMap) -> Iterator[Text]:
    """For a console too narrow for tables: a line a row, with the dtypes that work."""
    for name, row in found.rows.items():
        works = [short(dtype) for at, dtype in enumerate(found.dtypes) if row[at] == 0]
        yield Text(f"{_name(name)}: {' '.join(works) or 'nothing'}")


def _sign(finding: int, sign: Signs) -> Text:
    if finding == 0:
        return Text(sign.right, style=colours.RIGHT)
    return Text(_letter(finding), style=colours.QUIET)


def _letter(finding: int) -> str:
    """a, b, ..., z, A, B, ...: the reason's place in the legend."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[(finding - 1) % len(letters)]


def _map_legend(found: CapabilityMap, sign: Signs) -> list[RenderableType]:
    lines = [Text(f"{sign.right} right on every rank", style=colours.QUIET)]
    lines += [
        Text(f"{_letter(place)} {finding}", style=colours.QUIET)
        for place, finding in enumerate(found.findings)
        if place
    ]
    return [*lines]


def _name(key: str) -> str:
    """``all_reduce max``: the form is left out where there is only one."""
    form, _, reduce_op = key.partition(" ")
    return " ".join(each for each in (form.removesuffix("/tensor"), reduce_op) if each)
