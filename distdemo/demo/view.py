"""Tables of an op that ran, of ``hello`` and of ``ops``; ``view_picture`` draws explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from rich.text import Text

from distdemo import ops
from distdemo.calls.text import rank_label
from distdemo.demo.records import (
    Event,
    HelloReport,
    Introduction,
    OpList,
    OpReport,
    RankResult,
)
from distdemo.demo.view_picture import moved, picture, title
from distdemo.launcher.clock import EVENTS
from distdemo.view import colours
from distdemo.view.blocks import Block, Fitted, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.data import data_cells, rank_cell
from distdemo.view.format import (
    distinct,
    duration,
    plural,
    start_and_versions,
    unit_of,
)
from distdemo.view.tables import Cell, Column, Grid, Item, select

MANY = 16  # events shown from either end, and mismatches shown
OF_CALL = {"Arrived", "Left", "Present", "Waited", "Launch", "Wait", "Time"}
RIGHT = OF_CALL | {"Rank", "Process", "Pickle", "Called", "Returned"}
FOLDS = {"Host", "Command", "What it does", "Status"}
DROPPED = {"Waited", "Launch", "Wait", "Time"}
"""Columns that are empty for a rank that makes no call, that are right-aligned, whose cells may
wrap, and which narrow tables lack."""
DETAILS = {"Time"}
"""Columns that only --verbose prints. The time of one call says little of a machine: it includes a
rank's wait for other ranks and for a core."""
NEXT = "Next: distdemo learn, step by step; or distdemo scatter, any operation."
"""Last line of the first command that people try."""
SOFTWARE = {"nccl": "NCCL", "cuda": "CUDA", "hip": "HIP"}
"""Libraries that a report names with their version, if the run used them."""

Cells = dict[str, Cell]
"""A row of a table, by column name."""


def op_view(report: OpReport, sign: Signs) -> Iterator[Block]:
    """Yield the title, the table of ranks, the events of a non-blocking run, and the verdict.

    The table shows all of up to 16 ranks, else the first, the last and the wrong ones.
    """
    if report.explanation is not None:
        yield from picture(report.explanation, sign)
        yield Paragraph()
    shown = list(select(report.ranks, lambda result: not result.ok))
    yield Heading(title(report.spec, sign, report.world.world))
    if report.warning:
        yield Paragraph(f"! {report.warning}", colours.UNSURE)
    yield Fitted(
        lambda width: _per_rank(shown, sign, lambda result: _row(report, result, sign, width))
    )
    if report.has_events:
        events = [event for result in report.ranks for event in result.events]
        events.sort(key=lambda event: event.returned_s)
        if len(events) > 2 * MANY:
            events[MANY:-MANY] = []
        yield Heading("Buffers when each call returned")
        yield Fitted(lambda width: _events(events, sign, width))
    for note in _notes(report):
        yield Paragraph(note, colours.QUIET)
    for line in islice(_mismatches(report), MANY):
        yield Paragraph(line, colours.WRONG)
    yield Summary(verdict(report), report.ok)
    timed = [result for result in report.ranks if result.takes_part]
    if len(timed) > 1 and not report.has_events:
        yield Paragraph(_extremes(report, timed), colours.QUIET, is_detail=True)
    footer = "\n".join(_footer(report))
    if footer:
        yield Paragraph(footer, colours.QUIET)


def hello_view(report: HelloReport, sign: Signs) -> Iterator[Block]:
    """Yield the table of ranks and the verdict, for the same ranks as `op_view`."""
    size = len(report.ranks)

    def row(rank: Introduction) -> Cells:
        return {
            "Rank": rank_cell(rank.rank),
            "Process": str(rank.pid),
            "Host": rank.host,
            "Backend": rank.backend,
            "Device": rank.device,
            "Joined in": duration(rank.startup_s),
            "Heard from": f"{rank.heard_from} of {size}",
        }

    yield Heading(f"hello {sign.dot} {plural(size, 'rank')}")
    yield _per_rank(select(report.ranks, lambda rank: rank.heard_from != size), sign, row)
    slowest = max((rank.startup_s for rank in report.ranks), default=0.0)
    summary = "Some ranks didn't hear from all."
    if report.ok:
        joined = f"{plural(size, 'rank')} joined within {duration(slowest)} of their start"
        summary = f"{joined}; every rank heard from all."
    yield Summary(summary, report.ok)
    yield Paragraph(NEXT, colours.QUIET)
    yield Paragraph(
        start_and_versions(report.world, report.versions), colours.QUIET, is_detail=True
    )


def list_view(listed: OpList, _: Signs) -> Iterator[Block]:
    """Yield the list of ops; forms chosen by flags are below their command."""
    rows: list[Cells] = [
        {
            "Command": Text(f"  {op.flags}") if op.flags else Text(op.command, "bold"),
            "In torch.distributed": op.calls.replace("/", "/\n")
            + (f"\n({op.older})" if op.older else ""),
            "What it does": op.summary,
        }
        for op in listed.ops
    ]
    yield _grid(rows)
    commands = len({op.command for op in listed.ops})
    yield Summary(f"{plural(commands, 'operation')} in {plural(len(listed.ops), 'form')}.", None)
    hint = "distdemo explain OP draws one; distdemo OP runs it; distdemo OP --help lists its flags."
    yield Paragraph(f"In parentheses: the older name. {hint}", colours.QUIET)


# ------------------------------------------------------------------------------------- the tables


def _grid(rows: Sequence[Cells]) -> Grid:
    """Return a grid with the column names of the first row."""
    columns = [
        Column(name, name in RIGHT, name in FOLDS, int(name in DROPPED), name in DETAILS)
        for name in (rows[0] if rows else ())
    ]
    return Grid(columns, [list(row.values()) for row in rows])


def _per_rank(shown: Iterable[Item | int], sign: Signs, row: Callable[[Item], Cells]) -> Grid:
    """Return a grid with a row per rank, and a row for the ranks in between that are left out."""
    rows: list[Cells] = []
    for item in shown:
        if isinstance(item, int):
            texts = (sign.more, f"{item} more")
            rows.append({text: Text(text, colours.QUIET) for text in texts})
        else:
            rows.append(row(item))
    return _grid(rows)


def _row(report: OpReport, result: RankResult, sign: Signs, width: int) -> Cells:
    """Return the cells of one rank; the columns depend on the run."""
    cells: Cells = {"Rank": rank_cell(result.rank)}
    if report.world.hosts:
        cells["Host"] = report.world.hosts[result.rank]
    if report.group:
        number = result.rank if result.group_rank is None else result.group_rank
        cells["Group"] = "none" if result.group is None else f"rank {number}"
    if report.is_barrier:
        arrived, left, waited = _barrier_times(report, result)
        cells["Arrived"] = arrived
        cells["Left"] = left
        cells["Present"] = str(result.present)
    else:
        cells["Before"], _, pickles = data_cells(result.before, sign, width)
        if report.spec.objects:
            cells["Pickle"] = pickles
        cells["After"], cells["From"], _ = data_cells(result.after, sign, width)
    cells["Verified"] = _verified(result, sign)
    if report.is_barrier:
        cells["Waited"] = waited
    elif report.spec.async_op and not report.has_events:  # the table of events has their times
        cells["Launch"] = duration(result.launch_s or 0.0)
        cells["Wait"] = duration(result.wait_s or 0.0)
    elif not report.spec.async_op:
        cells["Time"] = duration(result.time_s)
    if not result.takes_part:
        cells |= dict.fromkeys(cells.keys() & OF_CALL, sign.none)
    return cells


def _barrier_times(report: OpReport, result: RankResult) -> tuple[str, str, str]:
    """Return when a rank arrived and left, and the difference of these two as they are shown."""
    unit = unit_of(max(other.ended_s for other in report.ranks))
    arrived = unit.ticks(result.started_s)
    left = unit.ticks(result.ended_s)
    return unit.text(arrived), unit.text(left), unit.text(left - arrived)


def _verified(result: RankResult, sign: Signs) -> Text:
    if result.checked == 0:
        return Text(sign.none, colours.QUIET)
    if not result.ok:
        what = "too early" if result.present is not None else f"{result.wrong:,} wrong"
        return Text(f"{sign.wrong} {what}", colours.WRONG)
    what = "exact" if result.tolerance == 0 else "close"
    if result.present is not None:
        what = "all arrived"
    return Text(f"{sign.right} {what}", colours.RIGHT)


def _events(events: Sequence[Event], sign: Signs, width: int) -> Grid:
    """Return the ranks' buffers when their calls returned, in order of time."""
    return _grid(
        [
            {
                "Rank": rank_cell(event.rank),
                "Call": event.call,
                "Called": duration(event.called_s),
                "Returned": duration(event.returned_s),
                "Buffer": data_cells(event.buffer, sign, width).data,
                "Status": event.rule,
            }
            for event in events
        ]
    )


# -------------------------------------------------------------------------------- notes and verdict


def _notes(report: OpReport) -> Iterator[str]:
    """Yield the op's notes on this spec, and what the tables leave unsaid."""
    yield from ops.REGISTRY[report.spec.op].notes(report.spec)
    if report.has_events:
        yield (
            "Times are since the first rank started. The ranks wait for each other between the "
            "calls, so each buffer is as its own call left it."
        )
    if report.world.hosts and (report.has_events or report.is_barrier):
        yield "Each host has its own first call: their clocks differ."
    if any(result.group is None for result in report.ranks):
        yield "Ranks outside the group make no call; their data was compared too."


def _mismatches(report: OpReport) -> Iterator[str]:
    """Yield a line per wrong element: rank, index, actual and expected value."""
    for result in () if report.is_barrier else report.ranks:
        for mismatch in result.mismatches:
            got, expected = distinct(mismatch.got, mismatch.expected)
            piece = f", piece {mismatch.piece}" if len(result.after.pieces) > 1 else ""
            index = f", index {', '.join(map(str, mismatch.index))}" if mismatch.index else ""
            yield f"rank {result.rank}{piece}{index}: got {got}, expected {expected}"


def verdict(report: OpReport) -> str:
    """Return the verdict, with the number of elements and the tolerance."""
    spec = report.spec
    compared = [result for result in report.ranks if result.takes_part or not spec.objects]
    checked = sum(result.checked for result in compared)
    if not report.ok:
        wrong = sum(result.wrong for result in report.ranks)
        bad = [result.rank for result in report.ranks if not result.ok]
        what = "ranks left too early" if report.is_barrier else f"{report.noun}s"
        where = f"on {rank_label(bad)}. {report.warning}"
        return f"Wrong: {wrong:,} of {checked:,} {what}, {where}".rstrip()
    if report.is_barrier:
        return "Verified: no rank left before all had arrived."
    tolerance = max(result.tolerance for result in report.ranks)
    match = f"within {tolerance:.2g}, the rounding of the dtype" if tolerance else "exactly"
    match = "arrived as sent" if spec.objects else f"match plain arithmetic {match}"
    alone = report.world.world.world_size == 1
    note = " With one rank every collective is the identity." if alone else ""
    return f"Verified: {plural(checked, report.noun)} {match}.{note}"


def _extremes(report: OpReport, timed: Sequence[RankResult]) -> str:
    """Return who was last; of several hosts, whose clocks differ, the longest call."""
    if report.world.hosts:
        longest = max(timed, key=lambda result: result.time_s)
        return f"Longest call: rank {longest.rank}, {duration(longest.time_s)}."
    late = max(timed, key=lambda result: result.started_s)
    last = max(timed, key=lambda result: result.ended_s)
    start, end = ("arrive", "leave") if report.is_barrier else ("start", "finish")
    started, ended = duration(late.started_s), duration(last.ended_s)
    if report.is_barrier:
        started, ended = _barrier_times(report, late)[0], _barrier_times(report, last)[1]
    return (
        f"Last to {start}: rank {late.rank}, {started} after the first; "
        f"to {end}: rank {last.rank}, at {ended}."
    )


def _footer(report: OpReport) -> Iterator[str]:
    """Yield the bytes moved, and on GPUs the clock and library versions."""
    if not report.is_barrier:
        yield f"Moves: {moved(report.traffic, report.spec)}."
    versions = report.versions
    software = [f"{SOFTWARE[name]} {versions[name]}" for name in versions if name in SOFTWARE]
    if any(result.clock == EVENTS for result in report.ranks):
        software.insert(0, f"Timed by {EVENTS}")
    if software:
        yield f"{'; '.join(software)}."
