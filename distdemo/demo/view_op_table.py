"""The table of an op that ran: what every rank held before and after, verified, timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.demo import view_holding as holding
from distdemo.demo.holdings import EVENTS, RankRecord
from distdemo.demo.reports import OpReport
from distdemo.demo.view_op_columns import columns, letter
from distdemo.demo.view_op_title import title, verdict_line
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import Cell, Column, Grid, fitting
from distdemo.view.numbers import distinct, duration, moved, plural, size
from distdemo.view.selection import select

MANY = 16  # lines of events from each end, and of mismatches

__all__ = ["op_table", "title", "verdict_line"]


def op_table(report: OpReport, console: Console, ranks: frozenset[int] | None = None) -> Group:
    """The table with its title, the events of a non-blocking run, notes and verdict.

    Args:
        report: of a world in which every rank returned.
        console: that it will be printed on; its width and encoding matter.
        ranks: those to show; None: all of up to 16, else the ends and whatever is wrong.
    """
    sign = signs(console)
    parts: list[RenderableType] = [
        heading(title(report, sign)),
        fitting(console, lambda room: _grid(report, sign, ranks, room)),
    ]
    if any(record.events for record in report.ranks):
        parts.append(heading("What each buffer held when the call returned"))
        parts.append(fitting(console, lambda room: _events(report, sign, room)))
    if any(record.steps for record in report.ranks):
        parts.append(heading("Step by step"))
        parts.append(fitting(console, lambda room: _steps(report, sign, ranks, room)))
    parts += [Text(note, style=colours.QUIET) for note in (*report.notes, *_groups(report))]
    parts += list(_mismatches(report.ranks))
    parts.append(verdict_line(report, sign))
    parts.append(_footer(report))
    return Group(*parts)


def _grid(report: OpReport, sign: Signs, ranks: frozenset[int] | None, room: int) -> Grid:
    told = columns(report, sign, room)
    grid = Grid([each.column for each in told])
    for entry in select(report.ranks, ranks, lambda record: not record.verification.ok):
        if isinstance(entry, RankRecord):
            grid.rows.append([each.cell(entry) for each in told])
        else:
            skipped = Text(f"{plural(entry, 'rank')} more", style=colours.QUIET)
            row: list[Cell] = [Text(sign.more), skipped, Text("all right", style=colours.QUIET)]
            grid.rows.append(row)
    return grid


def _events(report: OpReport, sign: Signs, room: int) -> Grid:
    """What each rank's buffer held when its calls returned, in the order of the clock."""
    heads = [
        Column("Clock", right=True),
        Column("Rank", right=True),
        Column("Call"),
        Column("Buffer", folds=True),
        Column("Which is"),
    ]
    grid = Grid(heads)
    events = sorted((e for record in report.ranks for e in record.events), key=lambda e: e.at)
    shown = events if len(events) <= 2 * MANY else events[:MANY] + events[-MANY:]
    for event in shown:
        rank = Text(str(event.rank), style=colours.of_rank(event.rank))
        held = holding.cell(event.holds, sign, room)
        grid.rows.append([duration(event.at), rank, event.what, held, event.rule])
    return grid


def _steps(report: OpReport, sign: Signs, ranks: frozenset[int] | None, room: int) -> Grid:
    """What each rank held after each step, and what it sent."""
    grid = Grid(
        [
            Column("Step"),
            Column("Rank", right=True),
            Column("Then holds", folds=True),
            Column("Sent", right=True),
        ]
    )
    shown = select(report.ranks, ranks, _is_wrong)
    stepping = [each for each in shown if isinstance(each, RankRecord) and each.steps]
    for place, step in enumerate(stepping[0].steps if stepping else ()):
        for record in stepping:
            name = f"{place + 1} {step.name}" if record is stepping[0] else ""
            rank = Text(str(record.rank), style=colours.of_rank(record.rank))
            mine = record.steps[place]
            sent = size(mine.sent) if mine.sent else Text(sign.none, style=colours.QUIET)
            grid.rows.append([name, rank, holding.cell(mine.holds, sign, room), sent])
    return grid


def _groups(report: OpReport) -> Iterator[str]:
    """Who is in which group, and that the others were left alone."""
    if len(report.specs) > 1:
        names = (
            f"{letter(number)} is ranks {','.join(map(str, spec.members or ()))}"
            for number, spec in enumerate(report.specs[:MANY])
        )
        yield f"Groups, each with its own ranks 0 to n − 1: {'; '.join(names)}."
    elif any(record.group_rank is None for record in report.ranks):
        yield "Ranks outside the group make no call; what they hold was compared too."


def _is_wrong(record: RankRecord) -> bool:
    return not record.verification.ok


def _mismatches(records: Sequence[RankRecord]) -> Iterator[Text]:
    """A line for each of the first wrong elements: rank, index, got, expected."""
    shown = 0
    for record in records:
        several = len(record.after.pieces) > 1
        for miss in record.verification.mismatches:
            if shown == MANY:
                return
            shown += 1
            got, expected = distinct(miss.got, miss.expected)
            if record.attendance is not None:
                text = f"rank {record.rank} was let go when {got} of {expected} had come"
            else:
                where = f"rank {record.rank}, " + (f"piece {miss.piece}, " if several else "")
                index = ", ".join(map(str, miss.index)) or "of the scalar"
                place = "" if isinstance(miss.got, str) else f"index {index}: "
                text = f"{where}{place}got {got}, expected {expected}"
            yield Text(text, style=colours.WRONG)


def _footer(report: OpReport) -> Text:
    lines = [*_who_was_last(report), *_moves(report), *_on_gpus(report)]
    return Text("\n".join(lines), style=colours.QUIET)


def _who_was_last(report: OpReport) -> Iterator[str]:
    came = [record for record in report.ranks if record.attendance is not None]
    if came:
        last = max(came, key=lambda r: r.attendance.arrived if r.attendance else 0.0)
        late = duration(last.attendance.arrived if last.attendance else 0.0)
        yield f"Last to come: rank {last.rank}, {late} after the first."
        return
    slowest = max(report.ranks, key=lambda record: record.seconds)
    slow = f"rank {slowest.rank}, {duration(slowest.seconds)}"
    if report.world.world.lazy and report.spec.group_size > 1:
        slow += ", opening its connections included"
    yield f"Slowest: {slow}."


def _on_gpus(report: OpReport) -> Iterator[str]:
    """What counts where tensors are on GPUs: which clock, which libraries."""
    names = {"nccl": "NCCL", "cuda": "CUDA", "hip": "HIP"}
    found = report.versions
    told = [f"{word} {found[name]}" for name, word in names.items() if name in found]
    if any(record.clock == EVENTS for record in report.ranks):
        told.insert(0, f"Timed by {EVENTS}")
    if told:
        yield f"{'; '.join(told)}."


def _moves(report: OpReport) -> Iterator[str]:
    traffic = report.traffic
    if any(record.attendance for record in report.ranks):
        return
    each = " in each group" if len(report.specs) > 1 else ""
    padded = "; every pickle padded to the largest" if report.spec.objects else ""
    moves = moved(traffic.payload_bytes, traffic.busbw_formula, traffic.busbw_factor)
    if traffic.busbw_formula == "1":
        yield f"Moves{each}: {moves}, {traffic.payload_is}."
    else:
        yield f"Moves{each}: {moves} ({traffic.payload_is}{padded})."
