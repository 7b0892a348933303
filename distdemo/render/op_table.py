"""The table of an op that ran: what every rank held before and after, verified, timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.model import RankRecord, Verification
from distdemo.render import colours, holding
from distdemo.render.console import Signs, signs
from distdemo.render.frame import fitting, frame, heading
from distdemo.render.numbers import distinct, duration, moved, plural, shape_text
from distdemo.render.selection import select
from distdemo.reports import OpReport

MANY = 16  # lines of events from each end, and of mismatches


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
        fitting(console, lambda room: _table(report, sign, ranks, room)),
    ]
    if any(record.events for record in report.ranks):
        parts.append(heading("What each buffer held when the call returned"))
        parts.append(fitting(console, lambda room: _events(report, sign, room)))
    parts += [Text(note, style=colours.QUIET) for note in report.notes]
    parts += list(_mismatches(report.ranks))
    parts.append(verdict_line(report, sign))
    parts.append(_footer(report))
    return Group(*parts)


def title(report: OpReport, sign: Signs) -> str:
    """What ran: op, reduce op, ranks, backend, device, dtype and shape."""
    spec, world = report.spec, report.world.world
    parts = [spec.op]
    if spec.reduce_op is not None:
        parts.append(spec.reduce_op)
    if spec.root is not None:
        parts.append(f"root {spec.root}")
    if spec.pattern == "ring":
        parts.append("ring")
    elif spec.src is not None:
        parts.append(f"{spec.src} to {spec.dst}")
    if spec.async_op:
        parts.append("non-blocking" if spec.pattern else "async")
    parts += [plural(spec.world_size, "rank"), world.backend, world.device]
    parts.append(shape_text(spec.dtype, spec.shape))
    return f" {sign.dot} ".join(parts)


def verdict_line(report: OpReport, sign: Signs) -> Text:
    """Right or wrong, how many elements were compared and how."""
    checked = sum(record.verification.checked for record in report.ranks)
    wrong = sum(record.verification.wrong for record in report.ranks)
    if not report.ok:
        bad = [record.rank for record in report.ranks if not record.verification.ok]
        who = ", ".join(map(str, bad[:8])) + (sign.more if len(bad) > 8 else "")
        text = f"{sign.wrong} Wrong: {wrong:,} of {checked:,} elements, on rank {who}."
        return Text(text, style=colours.WRONG)
    tolerance = max(record.verification.tolerance for record in report.ranks)
    how = "exactly" if tolerance == 0 else f"within {tolerance:.2g}, the rounding of the dtype"
    text = f"{sign.right} Verified: {checked:,} elements match plain arithmetic {how}."
    if report.spec.world_size == 1:
        text += " With one rank every collective is the identity."
    return Text(text, style=colours.RIGHT)


# ------------------------------------------------------------------------------------ the table


def _table(report: OpReport, sign: Signs, ranks: frozenset[int] | None, room: int) -> Table:
    timed_apart = report.spec.async_op
    table = frame()
    table.add_column("Rank", justify="right", no_wrap=True)
    table.add_column("Before", overflow="fold")
    table.add_column("After", overflow="fold")
    table.add_column("From", no_wrap=True)
    table.add_column("Verified", no_wrap=True)
    for name in ("Launch", "Wait") if timed_apart else ("Time",):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in select(report.ranks, ranks, lambda record: not record.verification.ok):
        if isinstance(entry, RankRecord):
            table.add_row(*_cells(entry, report, sign, room))
        else:
            skipped = Text(f"{plural(entry, 'rank')} more", style=colours.QUIET)
            table.add_row(Text(sign.more), skipped, Text("all right", style=colours.QUIET))
    return table


def _cells(record: RankRecord, report: OpReport, sign: Signs, room: int) -> list[RenderableType]:
    times = [record.seconds]
    if report.spec.async_op:
        times = [record.launch_seconds or 0.0, record.wait_seconds or 0.0]
    idle = not record.takes_part
    origin = Text("takes no part", style=colours.QUIET)
    return [
        Text(str(record.rank), style=colours.of_rank(record.rank)),
        holding.cell(record.before, sign, room),
        holding.cell(record.after, sign, room),
        origin if idle else holding.sources(record.after, sign),
        _verified(record.verification, sign),
        *(Text(sign.none if idle else duration(seconds)) for seconds in times),
    ]


def _verified(verification: Verification, sign: Signs) -> Text:
    if verification.checked == 0:
        return Text(sign.none, style=colours.QUIET)
    if not verification.ok:
        return Text(f"{sign.wrong} {verification.wrong:,} wrong", style=colours.WRONG)
    return Text(
        f"{sign.right} {'exact' if verification.tolerance == 0 else 'close'}", colours.RIGHT
    )


# ------------------------------------------------------------------------------- under the table


def _events(report: OpReport, sign: Signs, room: int) -> Table:
    """What each rank's buffer held when its calls returned, in the order of the clock."""
    table = frame()
    table.add_column("Clock", justify="right", no_wrap=True)
    table.add_column("Rank", justify="right", no_wrap=True)
    table.add_column("Call", no_wrap=True)
    table.add_column("Buffer", overflow="fold")
    table.add_column("Which is", no_wrap=True)
    events = sorted((e for record in report.ranks for e in record.events), key=lambda e: e.at)
    shown = events if len(events) <= 2 * MANY else events[:MANY] + events[-MANY:]
    for event in shown:
        table.add_row(
            duration(event.at),
            Text(str(event.rank), style=colours.of_rank(event.rank)),
            event.what,
            holding.cell(event.holds, sign, room),
            event.rule,
        )
    return table


def _mismatches(records: Sequence[RankRecord]) -> Iterator[Text]:
    """A line for each of the first wrong elements: rank, index, got, expected."""
    shown = 0
    for record in records:
        several = len(record.after.pieces) > 1
        for miss in record.verification.mismatches:
            if shown == MANY:
                return
            shown += 1
            where = f"rank {record.rank}, " + (f"piece {miss.piece}, " if several else "")
            index = ", ".join(map(str, miss.index)) or "of the scalar"
            got, expected = distinct(miss.got, miss.expected)
            text = f"{where}index {index}: got {got}, expected {expected}"
            yield Text(text, style=colours.WRONG)


def _footer(report: OpReport) -> Text:
    slowest = max(report.ranks, key=lambda record: record.seconds)
    traffic = report.traffic
    slow = f"rank {slowest.rank}, {duration(slowest.seconds)}"
    if report.world.world.lazy and report.spec.world_size > 1:
        slow += ", opening its connections included"
    moves = moved(traffic.payload, traffic.formula, traffic.factor)
    lines = [f"Slowest: {slow}.", f"Moves: {moves} ({traffic.payload_words})."]
    if traffic.formula == "1":
        lines[1] = f"Moves: {moves}, {traffic.payload_words}."
    return Text("\n".join(lines), style=colours.QUIET)
