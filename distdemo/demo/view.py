"""The tables of an op that ran, of ``hello`` and of ``ops``; ``view_picture`` explains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo import ops
from distdemo.demo.records import (
    Event,
    Explanation,
    HelloReport,
    Holding,
    ObjectPiece,
    OpList,
    OpReport,
    Piece,
    RankResult,
)
from distdemo.launcher.clock import EVENTS
from distdemo.ops.spec import Number
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import (
    decimal_size,
    distinct,
    duration,
    moved,
    number,
    origin,
    plural,
    ranks_text,
    shape_text,
)
from distdemo.view.tables import ROOMS, Cell, Column, Grid, fitting, heading, select

MANY = 16  # lines of events from each end, and of mismatches
CUT = 17  # columns for a tensor of which only the ends are shown
SHORT = 16  # elements up to which a tensor may be shown whole
FEW = 4  # pieces of a holding up to which all are shown
FIRST, LAST = 2, 1  # else these many from each end
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # names of groups; those beyond have numbers
RIGHT = {"Rank", "of", "Process", "Pickle", "Arrived", "Left", "Had come", "Launch", "Wait"}
RIGHT |= {"Waited", "Time", "Clock", "Sent"}
FOLDS = {"Host", "Before", "After", "Buffer", "Holds", "What it does"}
"""The columns whose cells stand at the right, and those whose cells may be broken into lines."""
USUAL_FORMS = ("tensor", "list", "plain", "blocking", "nonblocking", "ring", "ring nonblocking")

Report = OpReport | HelloReport | OpList | Explanation
Cells = dict[str, Cell]
"""A row of a table, by the names of its columns."""


def table(record: Report, console: Console, ranks: frozenset[int] | None = None) -> RenderableType:
    """The report as people read it.

    Args:
        record: of a world in which every rank returned.
        console: that it will be printed on; its width and encoding matter.
        ranks: those to show; None: all of up to 16, else the ends and those that are wrong.
    """
    if isinstance(record, Explanation):
        from distdemo.demo.view_picture import picture

        return picture(record, console)
    if isinstance(record, OpList):
        return _op_list(record, console)
    if isinstance(record, HelloReport):
        return _hello(record, console, ranks)
    return _op_table(record, console, ranks)


def summary(record: Report, console: Console) -> Text:
    """The verdict in one line."""
    sign = signs(console)
    if isinstance(record, Explanation):
        return Text(record.words.summary)
    if isinstance(record, OpList):
        return Text(", ".join(dict.fromkeys(each.command for each in record.ops)))
    verdict = _op_verdict(record, sign) if isinstance(record, OpReport) else _hello_verdict(record)
    if record.ok:
        return Text(f"{sign.right} {verdict}", style=colours.RIGHT)
    if isinstance(record, OpReport) and record.warning:
        verdict += f" {record.warning}"
    return Text(f"{sign.wrong} {verdict}", style=colours.WRONG)


# ------------------------------------------------------------------------------------ what is held


def held(holding: Holding, signs: Signs, room: int = ROOMS[0]) -> Text:
    """The pieces, a line each, none wider than ``room`` if that can be."""
    if holding.undefined or not holding.pieces:
        return Text("undefined" if holding.undefined else "nothing", style=colours.QUIET)
    shown, left_out = _selection(holding)
    lines = [_piece(piece, signs, room) for piece in shown]
    if holding.joined:  # one bracket opens in the first line and closes in the last
        last = len(lines) - 1
        for place, line in enumerate(lines):
            body = Text(" ") + line[1:] if place > 0 and line.plain[:1] == "[" else line
            lines[place] = body[:-1] if place < last and body.plain[-1:] == "]" else body
    if left_out:
        lines.insert(FIRST, Text(f"{signs.more} {left_out} more", style=colours.QUIET))
    return Text("\n").join(lines)


def sources(holding: Holding, signs: Signs) -> Text:
    """The rank that each piece came from, ``all`` if it was reduced: lines as in ``held``."""
    if holding.undefined or not holding.pieces:
        return Text(signs.none, style=colours.QUIET)
    return _lines(
        holding,
        signs,
        lambda piece: Text(
            "all" if piece.source is None else f"rank {piece.source}",
            style=colours.of_source(piece.source),
        ),
    )


def _lines(holding: Holding, signs: Signs, write: Callable[[Piece | ObjectPiece], Text]) -> Text:
    """A line for each piece that ``held`` shows."""
    shown, left_out = _selection(holding)
    lines = [write(piece) for piece in shown]
    if left_out:
        lines.insert(FIRST, Text(signs.more, style=colours.QUIET))
    return Text("\n").join(lines)


def _selection(holding: Holding) -> tuple[list[Piece | ObjectPiece], int]:
    pieces = list(holding.pieces)
    if not holding.omitted and len(pieces) <= FEW:
        return pieces, 0
    return pieces[:FIRST] + pieces[-LAST:], len(pieces) + holding.omitted - FIRST - LAST


def _piece(piece: Piece | ObjectPiece, signs: Signs, room: int) -> Text:
    """One tensor, nested like its shape if it fits, else its two ends; or one object as JSON."""
    style = colours.of_source(piece.source)
    if isinstance(piece, ObjectPiece):
        room = max(room, 12)
        body = json.dumps(piece.value, ensure_ascii=False)
        cut = body[: room - len(signs.more)] + signs.more
        return Text(body if len(body) <= room else cut, style)
    if not piece.last_values and len(piece.values) <= SHORT:
        body = _nested(piece.values, piece.shape)
        if len(body) <= room or len(piece.values) <= 2:
            return Text(body, style=style)
    last = piece.last_values or piece.values
    for count in (3, 2, 1):  # elements at each end: as many as fit
        ends = [*map(number, piece.values[:count]), signs.more, *map(number, last[-count:])]
        body = f"[{' '.join(ends)}]"
        if len(body) <= min(room, CUT):
            break
    return Text(body, style=style)


def _nested(values: Sequence[Number], shape: tuple[int, ...]) -> str:
    if not shape:
        return number(values[0]) if values else "[]"
    if len(shape) == 1:
        return f"[{' '.join(map(number, values))}]"
    step = len(values) // shape[0] if shape[0] else 0
    rows = (_nested(values[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0]))
    return f"[{' '.join(rows)}]"


# ------------------------------------------------------------------------------------ an op's table


def _op_table(report: OpReport, console: Console, ranks: frozenset[int] | None) -> Group:
    """The title, the table, the events of a non-blocking run, the steps, notes and the verdict."""
    sign = signs(console)
    parts: list[RenderableType] = []
    if report.explanation is not None:
        parts += [table(report.explanation, console), Text()]
    shown = list(select(report.ranks, ranks, lambda each: not each.verification.ok))

    def draw(room: int) -> Grid:
        return _grid(
            [
                _left_out(each, sign)
                if isinstance(each, int)
                else _rank_cells(report, each, sign, room)
                for each in shown
            ]
        )

    parts.append(heading(_title(report, sign)))
    if report.warning:
        parts.append(Text(f"! {report.warning}", style="yellow"))
    parts.append(fitting(console, draw))
    events = sorted((e for each in report.ranks for e in each.events), key=lambda e: e.at_s)
    if events:
        if len(events) > 2 * MANY:
            events[MANY:-MANY] = []
        parts.append(heading("What each buffer held when the call returned"))
        parts.append(fitting(console, lambda room: _events(events, sign, room)))
    stepping = [each for each in shown if isinstance(each, RankResult) and each.steps]
    if stepping:
        parts.append(heading("Step by step"))
        parts.append(fitting(console, lambda room: _steps(stepping, sign, room)))
    parts += [Text(note, style=colours.QUIET) for note in _notes(report)]
    parts += [Text(line, style=colours.WRONG) for line in _mismatches(report)][:MANY]
    parts.append(summary(report, console))
    parts.append(Text("\n".join(_footer(report)), style=colours.QUIET))
    return Group(*parts)


def _grid(rows: Sequence[Cells]) -> Grid:
    """Columns named as in the first row."""
    heads = rows[0] if rows else {}
    columns = [Column(name, right=name in RIGHT, folds=name in FOLDS) for name in heads]
    return Grid(columns, [list(row.values()) for row in rows])


def _left_out(count: int, sign: Signs) -> Cells:
    cells = {"Rank": sign.more, "More": f"{plural(count, 'rank')} more", "Fine": "all right"}
    return {name: Text(cell, style=colours.QUIET) for name, cell in cells.items()}


def _rank_cells(report: OpReport, each: RankResult, sign: Signs, room: int) -> Cells:
    """Of a rank what this run has something to say of."""
    cells: Cells = {"Rank": _rank(each.rank)}
    if report.world.hosts:
        cells["Host"] = report.world.hosts[each.rank]
    if each.group_rank is None and report.groups:
        cells["Group"] = "none"
    elif report.groups:
        group = _letter(each.group) if len(report.groups) > 1 else "rank"
        cells["Group"] = f"{group} {each.group_rank}"
    came, meets = each.attendance, _meets(report)
    if meets:
        cells["Arrived"] = duration(came.arrived_s) if came else sign.none
        cells["Left"] = duration(came.left_s) if came else sign.none
        cells["Had come"] = str(came.present) if came else sign.none
    else:
        cells["Before"] = held(each.before, sign, room)
        if report.spec.objects:
            cells["Pickle"] = _lines(each.before, sign, _pickled)
        cells["After"] = held(each.after, sign, room)
        cells["From"] = _from(each, sign)
    cells["Verified"] = _verified(each, sign)
    times = {"Waited" if meets else "Time": each.time_s}
    if report.spec.async_op:
        times = {"Launch": each.launch_s or 0.0, "Wait": each.wait_s or 0.0}
    for name, seconds in times.items():
        cells[name] = duration(seconds) if each.takes_part else sign.none
    return cells


def _meets(report: OpReport) -> bool:
    return any(each.attendance is not None for each in report.ranks)


def _rank(rank: int) -> Text:
    return Text(str(rank), style=colours.of_rank(rank))


def _letter(group: int) -> str:
    return LETTERS[group] if group < len(LETTERS) else str(group)


def _pickled(piece: Piece | ObjectPiece) -> Text:
    size = f"{piece.pickled_bytes} B" if isinstance(piece, ObjectPiece) else ""
    return Text(size, style=colours.QUIET)


def _from(each: RankResult, sign: Signs) -> Text:
    if each.takes_part:
        return sources(each.after, sign)
    return Text("itself" if each.group_rank is None else "takes no part", style=colours.QUIET)


def _verified(each: RankResult, sign: Signs) -> Text:
    found = each.verification
    if found.checked == 0:
        return Text(sign.none, style=colours.QUIET)
    if not found.ok:
        what = "too early" if each.attendance else f"{found.wrong:,} wrong"
        return Text(f"{sign.wrong} {what}", style=colours.WRONG)
    what = "exact" if found.tolerance == 0 else "close"
    if each.attendance:
        what = "all had come"
    elif each.group_rank is None:
        what = "as was"
    return Text(f"{sign.right} {what}", style=colours.RIGHT)


def _events(events: Sequence[Event], sign: Signs, room: int) -> Grid:
    """What each rank's buffer held when its calls returned, in the order of the clock."""
    return _grid(
        [
            {
                "Clock": duration(event.at_s),
                "Rank": _rank(event.rank),
                "Call": event.what,
                "Buffer": held(event.buffer, sign, room),
                "Which is": event.rule,
            }
            for event in events
        ]
    )


def _steps(stepping: Sequence[RankResult], sign: Signs, room: int) -> Grid:
    """What each rank held after each step, and what it sent."""
    return _grid(
        [
            {
                "Step": f"{number} {step.name}" if each is stepping[0] else "",
                "Rank": _rank(each.rank),
                "Holds": held(step.buffer, sign, room),
                "Sent": decimal_size(step.sent_bytes) if step.sent_bytes else sign.none,
            }
            for number, steps in enumerate(zip(*(each.steps for each in stepping), strict=True), 1)
            for each, step in zip(stepping, steps, strict=True)
        ]
    )


# ------------------------------------------------------------------------------------ its sentences


def _title(report: OpReport, sign: Signs) -> str:
    """Op, form, reduce op, root, group, ranks, backend, device, dtype and shape."""
    spec, world, groups = report.spec, report.world.world, report.groups
    several = len(groups) > 1
    root = group = ""
    if several:
        group = f"{len(groups)} groups of {plural(spec.group_size, 'rank')}"
    elif groups:
        group = f"group {','.join(map(str, groups[0]))}"
    if spec.root is not None:
        root = f"root {spec.root}"
        if several:
            root += " of each group"
        elif groups:
            root += f" of the group, rank {spec.member(spec.root)} of the world"
    pair = "" if spec.src is None else f"{spec.src} to {spec.dst}"
    data = shape_text(spec.dtype, spec.shape)
    if spec.sizes is not None:
        data = f"{spec.dtype}, lengths {','.join(map(str, spec.sizes[:8]))}"
    elif spec.objects or _meets(report):
        data = ""
    elif spec.splits:
        data = spec.dtype
    parts = (
        spec.op,
        "" if report.form in USUAL_FORMS else report.form,
        spec.reduce_op,
        root,
        "ring" if spec.pattern == "ring" else pair,
        ("non-blocking" if spec.pattern else "async") if spec.async_op else "",
        "inference mode" if spec.inference else "",
        group,
        plural(world.world_size, "rank"),
        world.backend,
        world.device,
        data,
    )
    return f" {sign.dot} ".join(filter(None, parts))


def _op_verdict(report: OpReport, sign: Signs) -> str:
    """Right or wrong, how many elements were compared and how."""
    spec, meets = report.spec, _meets(report)
    compared = [each for each in report.ranks if each.takes_part or not spec.objects]
    checked = sum(each.verification.checked for each in compared)
    noun = "object" if spec.objects else "element"
    if not report.ok:
        wrong = sum(each.verification.wrong for each in report.ranks)
        bad = [each.rank for each in report.ranks if not each.verification.ok]
        what = "ranks were let go too early" if meets else f"{noun}s"
        more = sign.more * (len(bad) > 8)
        return f"Wrong: {wrong:,} of {checked:,} {what}, on rank {ranks_text(bad[:8])}{more}."
    if meets:
        return "Verified: no rank was let go before all had come."
    alone = report.world.world.world_size == 1
    moral = " With one rank every collective is the identity." if alone else ""
    if spec.objects:
        return f"Verified: {plural(checked, noun)} came as they were sent.{moral}"
    tolerance = max((each.verification.tolerance for each in report.ranks), default=0.0)
    how = f"within {tolerance:.2g}, the rounding of the dtype" if tolerance else "exactly"
    return f"Verified: {checked:,} elements match plain arithmetic {how}.{moral}"


def _notes(report: OpReport) -> Iterator[str]:
    """What the op says of this spec, and who is in which group."""
    yield from ops.REGISTRY[report.spec.op].notes(report.spec)
    if report.world.hosts and any(each.events or each.attendance for each in report.ranks):
        yield "Times are counted on each host from its own first event."
    if len(report.groups) > 1:
        named = (
            f"{_letter(number)} is ranks {ranks_text(members)}"
            for number, members in enumerate(report.groups[:MANY])
        )
        yield f"Groups, each with its own ranks 0 to n − 1: {'; '.join(named)}."
    elif any(each.group_rank is None for each in report.ranks):
        yield "Ranks outside the group make no call; what they hold was compared too."


def _mismatches(report: OpReport) -> Iterator[str]:
    """A line for each of the wrong elements: rank, index, got, expected."""
    for each in report.ranks:
        for miss in each.verification.mismatches:
            got, expected = distinct(miss.got, miss.expected)
            if each.attendance is not None:
                yield f"rank {each.rank} was let go when {got} of {expected} had come"
                continue
            piece = f", piece {miss.piece}" if len(each.after.pieces) > 1 else ""
            index = f", index {', '.join(map(str, miss.index))}" if miss.index else ""
            yield f"rank {each.rank}{piece}{index}: got {got}, expected {expected}"


def _footer(report: OpReport) -> Iterator[str]:
    """Who was last, what the op moves, and on GPUs by which clock and libraries."""
    spec, traffic = report.spec, report.traffic
    came = [(each.attendance.arrived_s, each.rank) for each in report.ranks if each.attendance]
    if came:
        late, rank = max(came)
        yield f"Last to come: rank {rank}, {duration(late)} after the first."
    elif report.ranks:
        slowest = max(report.ranks, key=lambda each: each.time_s)
        connects = report.world.world.lazy and spec.group_size > 1
        also = ", opening its connections included" if connects else ""
        yield f"Slowest: rank {slowest.rank}, {duration(slowest.time_s)}{also}."
        where = " in each group" if len(report.groups) > 1 else ""
        moves = moved(traffic.payload_bytes, traffic.busbw_formula, traffic.busbw_factor)
        if traffic.busbw_formula == "1":
            yield f"Moves{where}: {moves}, {traffic.payload_is}."
        else:
            padded = "; every pickle padded to the largest" if spec.objects else ""
            yield f"Moves{where}: {moves} ({traffic.payload_is}{padded})."
    names = {"nccl": "NCCL", "cuda": "CUDA", "hip": "HIP"}
    found = [f"{names[key]} {version}" for key, version in report.versions.items() if key in names]
    if any(each.clock == EVENTS for each in report.ranks):
        found.insert(0, f"Timed by {EVENTS}")
    if found:
        yield f"{'; '.join(found)}."


# ---------------------------------------------------------------------------------- hello and ops


def _hello(report: HelloReport, console: Console, ranks: frozenset[int] | None) -> Group:
    """Who every rank is, and whether it heard from all the others."""
    sign, size = signs(console), len(report.ranks)
    rows: list[Cells] = []
    for each in select(report.ranks, ranks, lambda one: one.heard_from != size):
        if isinstance(each, int):
            rows.append({"Rank": sign.more})
            continue
        rows.append(
            {
                "Rank": _rank(each.rank),
                "of": str(each.world_size),
                "Process": str(each.pid),
                "Host": each.host,
                "Backend": each.backend,
                "Device": each.device,
                "Joined in": duration(each.startup_s),
                "Heard from": f"{each.heard_from} of {size}",
            }
        )
    return Group(
        heading(f"hello {sign.dot} {plural(size, 'rank')}"),
        fitting(console, lambda _: _grid(rows)),
        summary(report, console),
        Text(origin(report.world, report.versions), style=colours.QUIET),
    )


def _hello_verdict(report: HelloReport) -> str:
    if not report.ok:
        return "Not every rank heard from all."
    slowest = max(each.startup_s for each in report.ranks)
    up = f"{plural(len(report.ranks), 'rank')} joined within {duration(slowest)} of their start"
    return f"{up}; each heard from all."


def _op_list(listed: OpList, console: Console) -> Group:
    """A form that flags choose stands under its command."""
    rows: list[Cells] = [
        {
            "Command": Text(f"  {each.flags}") if each.flags else Text(each.command, "bold"),
            "In torch.distributed": each.calls,
            "What it does": each.summary,
        }
        for each in listed.ops
    ]
    hint = "distdemo explain OP draws one; distdemo OP runs it; distdemo OP --help lists its flags."
    return Group(fitting(console, lambda _: _grid(rows)), Text(hint, style=colours.QUIET))
