"""How a program of the user's own went: what every rank printed and returned, or why it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.launcher.records import Returned
from distdemo.run.records import RunReport
from distdemo.view import colours
from distdemo.view.console import Signs, show, signs
from distdemo.view.failure import failure
from distdemo.view.frame import heading
from distdemo.view.grid import Column, Grid, fitting, widest
from distdemo.view.numbers import duration, plural
from distdemo.view.selection import MANY, select
from distdemo.view.written import lines_of

FEW = 8  # lines of one rank's output up to which it may stand in a table
FEW_IN_ALL = 48  # lines of all ranks together, likewise
FIRST, LAST = 200, 300  # lines that are shown of an output that is very long
LONGEST = 240  # characters of a returned value in the table


@dataclass(frozen=True, slots=True)
class Entry:
    """What one rank did, or several that did the same.

    Attributes:
        ranks: in order.
        lines: what each of them printed.
        left_out: bytes of it that were not kept.
        returned: the value as text; empty: nothing.
        failed: it did not come to its end.
    """

    ranks: tuple[int, ...]
    lines: tuple[str, ...]
    left_out: int
    returned: str
    failed: bool

    @property
    def rank(self) -> int:
        """The first of them."""
        return self.ranks[0]


def show_run(
    report: RunReport, console: Console, only: frozenset[int] | None = None, *, traceback: bool
) -> None:
    """Print all of it; a failure last, as that is where people look first.

    Args:
        report: how it went.
        console: where to.
        only: the ranks whose output and values are shown, then all of it; None: all ranks.
        traceback: with the frames of libraries, too.
    """
    show(console, title(report, signs(console)))
    _show_entries(entries_of(report, only), console, only)
    if report.world is not None and not report.world.ok:
        _show_failure(report, console, traceback=traceback)
    else:
        show(console, Group(verdict_line(report, console), _footer(report)))


def show_verdict(report: RunReport, console: Console, *, traceback: bool) -> None:
    """The verdict alone."""
    if report.world is not None and not report.world.ok:
        _show_failure(report, console, traceback=traceback)
    else:
        show(console, verdict_line(report, console))


def title(report: RunReport, sign: Signs) -> Text:
    """What ran, on how many ranks, over what."""
    own = "makes its own group" if report.program.function else "run whole"
    group = (report.backend, report.device) if report.backend else (own,)
    parts = (report.program.name, plural(report.world_size, "rank"), *group)
    return heading(f" {sign.dot} ".join(parts))


def verdict_line(report: RunReport, console: Console) -> Text:
    """How it went, in a line."""
    sign = signs(console)
    world = report.world
    if world is None:
        line = f"{sign.wrong} Interrupted. All ranks are gone, nothing was left behind."
        return Text(line, style=colours.WRONG)
    done = "returned" if report.program.function else "came to the end"
    size = report.world_size
    who = {1: "The rank", 2: "Both ranks"}.get(size, f"All {size:,} ranks")
    return Text(f"{sign.right} {who} {done}, in {duration(world.seconds)}.", style=colours.RIGHT)


def entries_of(report: RunReport, only: frozenset[int] | None = None) -> list[Entry]:
    """One a rank, in order; of the ranks that are to be shown."""
    world = report.world
    entries = []
    for rank, transcript in enumerate(report.transcripts):
        value = report.values[rank] if rank < len(report.values) else None
        failed = world is not None and not isinstance(world.outcomes[rank], Returned)
        lines = tuple(lines_of(transcript.text))
        returned = "" if value is None else value.text
        if only is None or rank in only:
            entries.append(Entry((rank,), lines, transcript.left_out, returned, failed))
    return entries


def grouped(entries: Sequence[Entry], *, by_value: bool) -> list[Entry]:
    """Those that did the same as one, in the order of their first ranks.

    Args:
        entries: one a rank.
        by_value: also what they returned has to be the same, and how they ended.
    """
    found: dict[object, Entry] = {}
    for each in entries:
        key = (each.lines, each.left_out, *((each.returned, each.failed) if by_value else ()))
        same = found.get(key)
        ranks = each.ranks if same is None else (*same.ranks, *each.ranks)
        failed = each.failed or (same is not None and same.failed)
        found[key] = Entry(ranks, each.lines, each.left_out, each.returned, failed)
    return list(found.values())


def span(ranks: Sequence[int]) -> str:
    """``0``, ``0-3, 7``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)


# --------------------------------------------------------------------- what they printed, returned


def _show_entries(entries: Sequence[Entry], console: Console, only: frozenset[int] | None) -> None:
    """In one table where that is short and fits; else what was printed, then what was returned."""
    if not any(each.lines or each.returned for each in entries):
        return
    if any(each.lines for each in entries):
        table = _together(entries, console, only)
        if table is not None:
            show(console, table)
            return
        _show_printed(entries, console, only)
    if any(each.returned for each in entries):
        show(
            console, fitting(console, lambda _: _grid(entries, signs(console), only, printed=False))
        )


def _together(
    entries: Sequence[Entry], console: Console, only: frozenset[int] | None
) -> Table | None:
    """All in one table; None where it would be too long or too wide."""
    grid = _grid(entries, signs(console), only, printed=True)
    longest = max(len(each.lines) for each in entries)
    count = sum(len(str(row[1]).splitlines()) for row in grid.rows if len(row) > 1)
    if longest > FEW or count > FEW_IN_ALL or any(each.left_out for each in entries):
        return None
    table = grid.table()
    return table if widest(console, table) <= console.width else None


def _grid(
    entries: Sequence[Entry], sign: Signs, only: frozenset[int] | None, *, printed: bool
) -> Grid:
    """A row a rank; of many ranks, those that did the same have one together."""
    returned = any(each.returned for each in entries)
    columns = [Column("Rank", right=True)]
    columns += [Column("Printed")] if printed else []
    columns += [Column("Returned", folds=True)] if returned else []
    if not printed:
        entries = [Entry(e.ranks, (), 0, e.returned, e.failed) for e in entries]
    grid = Grid(columns)
    for each in _chosen(entries if len(entries) <= MANY else grouped(entries, by_value=True), only):
        if isinstance(each, int):
            grid.rows.append([sign.more])
            continue
        row: list[Text | str] = [_label(each.ranks)]
        row += [Text("\n".join(each.lines))] if printed else []
        row += [_value(each, sign, cut=only is None)] if returned else []
        grid.rows.append(row)
    return grid


def _chosen(entries: Sequence[Entry], only: frozenset[int] | None) -> list[Entry | int]:
    """What is shown of them: see ``selection``; all of those that were asked for."""
    asked = None if only is None else frozenset(each.rank for each in entries)
    return list(select(entries, asked, lambda each: each.failed))


def _value(entry: Entry, sign: Signs, *, cut: bool) -> str:
    if not entry.returned:
        return sign.none
    text = "\n".join(lines_of(entry.returned))
    return f"{text[:LONGEST]} {sign.more}" if cut and len(text) > LONGEST else text


def _show_printed(entries: Sequence[Entry], console: Console, only: frozenset[int] | None) -> None:
    """A block a rank, or for several that printed the same: the lines as they are."""
    sign = signs(console)
    silent = [each.rank for each in entries if not each.lines]
    for each in _chosen(grouped([e for e in entries if e.lines], by_value=False), only):
        if isinstance(each, int):
            more = f"{sign.more} {plural(each, 'output')} more: --only RANKS shows them."
            show(console, Text(more, style=colours.QUIET))
            continue
        did = "each printed:" if each.ranks[1:] else "printed:"
        show(console, _named(each.ranks) + Text(f" {did}"))
        show(console, Text("\n".join(_cut(each, sign, only))), whole=True)
        show(console, "")
    if silent:
        show(console, _named(silent) + Text(" printed nothing."))


def _cut(entry: Entry, sign: Signs, only: frozenset[int] | None) -> list[str]:
    lines = list(entry.lines)
    left_out = len(lines) - FIRST - LAST
    if only is not None or left_out <= 0:
        return lines
    note = f"{sign.more} {plural(left_out, 'line')} left out: --only {entry.rank} shows them."
    return [*lines[:FIRST], note, *lines[-LAST:]]


def _named(ranks: Sequence[int]) -> Text:
    if len(ranks) == 1:
        return Text(f"Rank {ranks[0]}", style=f"bold {colours.of_rank(ranks[0])}")
    return Text(f"Ranks {span(ranks)}", style="bold")


def _label(ranks: Sequence[int]) -> Text:
    return Text(span(ranks), style=colours.of_rank(ranks[0]) if len(ranks) == 1 else "")


# ---------------------------------------------------------------------------------------- verdict


def _show_failure(report: RunReport, console: Console, *, traceback: bool) -> None:
    """The verdict, how each rank ended, and where it happened in the user's own lines."""
    world = report.world
    if world is None or world.verdict is None:
        return
    show(console, failure(world, console, guest=True))
    verdict = world.verdict
    trace = verdict.traceback if traceback else verdict.excerpt or verdict.traceback
    if not trace:
        return
    show(console, Text(trace.rstrip()), whole=True)
    if verdict.excerpt and not traceback and verdict.excerpt != verdict.traceback:
        show(console, Text("--traceback adds the frames of libraries.", style=colours.QUIET))


def _footer(report: RunReport) -> RenderableType:
    world = report.world
    lines = [] if world is None else [f"Started by {world.start_method}: {world.start_reason}."]
    lines.append(", ".join(f"{name} {version}" for name, version in report.versions.items()))
    return Text("\n".join(lines), style=colours.QUIET)
