"""Tables of an op that ran, of ``hello`` and of ``ops``; ``view_picture`` draws explanations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rich.text import Text

from distdemo import ops
from distdemo.demo.records import (
    Event,
    HelloReport,
    ObjectPiece,
    OpList,
    OpReport,
    Piece,
    RankResult,
)
from distdemo.demo.view_cells import cell_beside, data_cell, moved, same_layout, source_cell
from distdemo.demo.view_picture import picture
from distdemo.launcher.clock import EVENTS
from distdemo.view import colours
from distdemo.view.blocks import Block, Fitted, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import (
    decimal_size,
    distinct,
    duration,
    plural,
    ranks_text,
    shape_text,
    start_and_versions,
)
from distdemo.view.tables import Cell, Column, Grid, select

MANY = 16  # events shown from either end, and mismatches shown
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # names of groups; later groups have numbers
RIGHT = {"Rank", "of", "Process", "Pickle", "Arrived", "Left", "Present", "Launch", "Wait"}
RIGHT |= {"Waited", "Time", "Called", "Returned", "Sent"}
FOLDS = {"Host", "What it does", "Status"}
DROPPED = {"Time", "Waited", "Launch", "Wait"}
BESIDE = {"From", "Pickle"}
"""Columns that are right-aligned, whose cells may wrap, which narrow tables lack, and of which each
line belongs to a piece in the column before."""
USUAL_FORMS = ("tensor", "list", "plain", "blocking", "nonblocking", "ring", "ring nonblocking")

Cells = dict[str, Cell]
"""A row of a table, by column name."""


# ------------------------------------------------------------------------------------ an op's table


def op_view(report: OpReport, sign: Signs, ranks: frozenset[int] | None = None) -> Iterator[Block]:
    """Yield title, table, events of a non-blocking run, steps, notes and verdict.

    Args:
        report: Report of a world in which every rank returned.
        sign: Signs of the terminal.
        ranks: Ranks to show; by default all of up to 16, else the first, last and wrong ones.
    """
    if report.explanation is not None:
        yield from picture(report.explanation, sign)
        yield Paragraph()
    shown = list(select(report.ranks, ranks, lambda result: not result.ok))
    results = [result for result in shown if isinstance(result, RankResult)]

    def draw(width: int) -> Grid:
        holdings = [held for result in results for held in (result.before, result.after)]
        room = same_layout(holdings, width)
        rows = []
        for result in shown:
            if isinstance(result, RankResult):
                rows.append(_rank_cells(report, result, sign, room))
                continue
            cells = (sign.more, f"{plural(result, 'rank')} more", "all right")
            rows.append({cell: Text(cell, style=colours.QUIET) for cell in cells})
        return _grid(rows)

    yield Heading(_title(report, sign))
    if report.warning:
        yield Paragraph(f"! {report.warning}", "yellow")
    yield Fitted(draw)
    if report.has_events:
        events = [event for result in report.ranks for event in result.events]
        events.sort(key=lambda event: event.returned_s)
        if len(events) > 2 * MANY:
            events[MANY:-MANY] = []
        yield Heading("Buffers when each call returned")
        yield Fitted(lambda width: _events(events, sign, width))
    stepping = [result for result in results if result.steps]
    if stepping:
        yield Heading("Step by step")
        yield Fitted(lambda width: _steps(stepping, sign, width))
    for note in _notes(report):
        yield Paragraph(note, colours.QUIET)
    for line in islice(_mismatches(report), MANY):
        yield Paragraph(line, colours.WRONG)
    verdict = _op_verdict(report, sign)
    if report.warning and not report.ok:
        verdict += f" {report.warning}"
    yield Summary(verdict, report.ok)
    yield Paragraph("\n".join(_footer(report)), colours.QUIET)


def _grid(rows: Sequence[Cells]) -> Grid:
    """Return a grid with the column names of the first row."""
    heads = rows[0] if rows else {}
    columns = [
        Column(name, name in RIGHT, name in FOLDS, int(name in DROPPED), name in BESIDE)
        for name in heads
    ]
    return Grid(columns, [list(row.values()) for row in rows])


def _rank_cells(report: OpReport, result: RankResult, sign: Signs, width: int) -> Cells:
    """Return the cells of one rank; the columns depend on the run."""
    cells: Cells = {"Rank": _rank(result.rank)}
    if report.world.hosts:
        cells["Host"] = report.world.hosts[result.rank]
    if report.groups and result.group is None:
        cells["Group"] = "none"
    elif report.groups:
        group = _letter(result.group or 0) if len(report.groups) > 1 else "rank"
        group_rank = result.rank if result.group_rank is None else result.group_rank
        cells["Group"] = f"{group} {group_rank}"
    if report.is_barrier:
        arrived = result.present is not None
        cells["Arrived"] = duration(result.started_s) if arrived else sign.none
        cells["Left"] = duration(result.ended_s) if arrived else sign.none
        cells["Present"] = str(result.present) if arrived else sign.none
    else:
        cells["Before"] = data_cell(result.before, sign, width)
        if report.spec.objects:
            cells["Pickle"] = cell_beside(result.before, sign, width, _pickled)
        cells["After"] = data_cell(result.after, sign, width)
        cells["From"] = _from(result, sign, width)
    cells["Verified"] = _verified(result, sign)
    if report.is_barrier:
        times = {"Waited": result.time_s}
    elif report.has_events:  # the table of calls has their times
        times = {}
    elif report.spec.async_op:
        times = {"Launch": result.launch_s or 0.0, "Wait": result.wait_s or 0.0}
    else:
        times = {"Time": result.time_s}
    for name, seconds in times.items():
        cells[name] = duration(seconds) if result.takes_part else sign.none
    return cells


def _rank(rank: int) -> Text:
    return Text(str(rank), style=colours.of_rank(rank))


def _letter(group: int) -> str:
    return LETTERS[group] if group < len(LETTERS) else str(group)


def _pickled(piece: Piece | ObjectPiece) -> Text:
    size = f"{piece.pickled_bytes} B" if isinstance(piece, ObjectPiece) else ""
    return Text(size, style=colours.QUIET)


def _from(result: RankResult, sign: Signs, width: int) -> Text:
    if result.takes_part:
        return source_cell(result.after, sign, width)
    return Text("itself" if result.group is None else "takes no part", style=colours.QUIET)


def _verified(result: RankResult, sign: Signs) -> Text:
    if result.checked == 0:
        return Text(sign.none, style=colours.QUIET)
    if not result.ok:
        what = "too early" if result.present is not None else f"{result.wrong:,} wrong"
        return Text(f"{sign.wrong} {what}", style=colours.WRONG)
    if result.present is not None:
        what = "all arrived"
    elif result.group is None:
        what = "same"
    else:
        what = "exact" if result.tolerance == 0 else "close"
    return Text(f"{sign.right} {what}", style=colours.RIGHT)


def _events(events: Sequence[Event], sign: Signs, width: int) -> Grid:
    """Return the ranks' buffers when their calls returned, in order of time."""
    rows: list[Cells] = [
        {
            "Rank": _rank(event.rank),
            "Call": event.call,
            "Called": duration(event.called_s),
            "Returned": duration(event.returned_s),
            "Buffer": data_cell(event.buffer, sign, width),
            "Status": event.rule,
        }
        for event in events
    ]
    return _grid(rows)


def _steps(results: Sequence[RankResult], sign: Signs, width: int) -> Grid:
    """Return the ranks' data after every step, and the bytes that they sent."""
    rows: list[Cells] = []
    for number in range(len(results[0].steps)):
        for result in results:
            step = result.steps[number]
            rows.append(
                {
                    "Step": f"{number + 1} {step.name}" if result is results[0] else "",
                    "Rank": _rank(result.rank),
                    "Holds": data_cell(step.buffer, sign, width),
                    "Sent": decimal_size(step.sent_bytes) if step.sent_bytes else sign.none,
                }
            )
    return _grid(rows)


# -------------------------------------------------------------------------------- title and verdict


def _title(report: OpReport, sign: Signs) -> str:
    """Return op, form, reduce op, root, group, ranks, backend, device, dtype and shape."""
    spec = report.spec
    world = report.world.world
    root = "" if spec.root is None else f"root {spec.root}"
    group = ""
    if len(report.groups) > 1:
        group = f"{len(report.groups)} groups of {plural(spec.group_size, 'rank')}"
        root += " of each group" * bool(root)
    elif report.groups:
        group = f"group {ranks_text(report.groups[0])}"
        if spec.root is not None:
            root += f" of the group, rank {spec.member(spec.root)} of the world"
    form = ops.REGISTRY[spec.op].form(spec).name
    pair = "" if spec.src is None else f"{spec.src} to {spec.dst}"
    data = "" if spec.objects or report.is_barrier else shape_text(spec.dtype, spec.shape)
    if spec.sizes is not None:
        data = f"{spec.dtype}, lengths {','.join(map(str, spec.sizes[:8]))}"
    elif spec.splits:
        data = spec.dtype
    parts = (
        spec.op,
        "" if form in USUAL_FORMS else form,
        spec.reduce_op,
        root,
        "ring" if spec.pattern == "ring" else pair,
        ("non-blocking" if spec.pattern else "async") if spec.async_op else "",
        group,
        plural(world.world_size, "rank"),
        world.backend,
        world.device,
        data,
    )
    return f" {sign.dot} ".join(filter(None, parts))


def _op_verdict(report: OpReport, sign: Signs) -> str:
    """Return the verdict, with the number of elements and the tolerance."""
    spec = report.spec
    compared = [result for result in report.ranks if result.takes_part or not spec.objects]
    checked = sum(result.checked for result in compared)
    noun = "object" if spec.objects else "element"
    if not report.ok:
        wrong = sum(result.wrong for result in report.ranks)
        bad = [result.rank for result in report.ranks if not result.ok]
        what = "ranks left too early" if report.is_barrier else f"{noun}s"
        more = sign.more * (len(bad) > 8)
        return f"Wrong: {wrong:,} of {checked:,} {what}, on rank {ranks_text(bad[:8])}{more}."
    if report.is_barrier:
        return "Verified: no rank left before all had arrived."
    alone = report.world.world.world_size == 1
    note = " With one rank every collective is the identity." if alone else ""
    if spec.objects:
        return f"Verified: {plural(checked, noun)} arrived as sent.{note}"
    tolerance = max((result.tolerance for result in report.ranks), default=0.0)
    how = f"within {tolerance:.2g}, the rounding of the dtype" if tolerance else "exactly"
    return f"Verified: {checked:,} elements match plain arithmetic {how}.{note}"


def _notes(report: OpReport) -> Iterator[str]:
    """Yield the op's notes on this spec, and the members of the groups."""
    yield from ops.REGISTRY[report.spec.op].notes(report.spec)
    if report.has_events:
        yield (
            "Times are since the first rank started. The ranks wait for each other between the "
            "calls, so each buffer is as its own call left it."
        )
    if report.world.hosts and (report.has_events or report.is_barrier):
        yield "Each host has its own first call: their clocks differ."
    if len(report.groups) > 1:
        named = (
            f"{_letter(number)} is ranks {ranks_text(members)}"
            for number, members in enumerate(report.groups[:MANY])
        )
        yield f"Groups, each with its own ranks 0 to n − 1: {'; '.join(named)}."
    elif any(result.group is None for result in report.ranks):
        yield "Ranks outside the group make no call; their data was compared too."


def _mismatches(report: OpReport) -> Iterator[str]:
    """Yield a line per wrong element: rank, index, actual and expected value."""
    for result in report.ranks:
        for mismatch in result.mismatches:
            got, expected = distinct(mismatch.got, mismatch.expected)
            if report.is_barrier:
                yield f"rank {result.rank} left when {got} of {expected} ranks had arrived"
                continue
            piece = f", piece {mismatch.piece}" if len(result.after.pieces) > 1 else ""
            index = f", index {', '.join(map(str, mismatch.index))}" if mismatch.index else ""
            yield f"rank {result.rank}{piece}{index}: got {got}, expected {expected}"


def _footer(report: OpReport) -> Iterator[str]:
    """Yield the times, the bytes moved, and on GPUs the clock and library versions."""
    if not report.has_events:
        yield from _times(report)
    if not report.is_barrier:
        where = " in each group" if len(report.groups) > 1 else ""
        padded = "; every pickle padded to the largest" if report.spec.objects else ""
        yield f"Moves{where}: {moved(report.traffic)}{padded}."
    names = {"nccl": "NCCL", "cuda": "CUDA", "hip": "HIP"}
    software = [
        f"{names[key]} {version}" for key, version in report.versions.items() if key in names
    ]
    if any(result.clock == EVENTS for result in report.ranks):
        software.insert(0, f"Timed by {EVENTS}")
    if software:
        yield f"{'; '.join(software)}."


def _times(report: OpReport) -> Iterator[str]:
    """Yield who was last, on one clock; with several hosts, whose call took the longest."""
    timed = [result for result in report.ranks if result.takes_part]
    if len(timed) < 2:
        return
    if report.world.hosts:
        longest = max(timed, key=lambda result: result.time_s)
        yield f"Longest call: rank {longest.rank}, {duration(longest.time_s)}."
        return
    late = max(timed, key=lambda result: result.started_s)
    last = max(timed, key=lambda result: result.ended_s)
    first = "the first of its group" if len(report.groups) > 1 else "the first"
    start = "arrive" if report.is_barrier else "start"
    end = "leave" if report.is_barrier else "finish"
    yield (
        f"Last to {start}: rank {late.rank}, {duration(late.started_s)} after {first}; "
        f"to {end}: rank {last.rank}, at {duration(last.ended_s)}."
    )


# ---------------------------------------------------------------------------------- hello and ops


def hello_view(
    report: HelloReport, sign: Signs, ranks: frozenset[int] | None = None
) -> Iterator[Block]:
    """Yield the introductions of all ranks."""
    size = len(report.ranks)
    rows: list[Cells] = []
    for rank in select(report.ranks, ranks, lambda rank: rank.heard_from != size):
        if isinstance(rank, int):  # the number of ranks left out
            rows.append({"Rank": sign.more})
            continue
        rows.append(
            {
                "Rank": _rank(rank.rank),
                "of": str(rank.world_size),
                "Process": str(rank.pid),
                "Host": rank.host,
                "Backend": rank.backend,
                "Device": rank.device,
                "Joined in": duration(rank.startup_s),
                "Heard from": f"{rank.heard_from} of {size}",
            }
        )
    yield Heading(f"hello {sign.dot} {plural(size, 'rank')}")
    yield _grid(rows)
    slowest = max((shown.startup_s for shown in report.ranks), default=0.0)
    verdict = "Some ranks didn't hear from all."
    if report.ok:
        joined = f"{plural(size, 'rank')} joined within {duration(slowest)} of their start"
        verdict = f"{joined}; each heard from all."
    yield Summary(verdict, report.ok)
    yield Paragraph(start_and_versions(report.world, report.versions), colours.QUIET)


def list_view(listed: OpList, _: Signs) -> Iterator[Block]:
    """Yield the list of ops; forms chosen by flags are below their command."""
    rows: list[Cells] = [
        {
            "Command": Text(f"  {op.flags}") if op.flags else Text(op.command, "bold"),
            "In torch.distributed": op.calls,
            "What it does": op.summary,
        }
        for op in listed.ops
    ]
    yield _grid(rows)
    hint = "distdemo explain OP draws one; distdemo OP runs it; distdemo OP --help lists its flags."
    yield Paragraph(hint, colours.QUIET)
