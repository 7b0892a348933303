"""View of the calls as a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from distdemo.rpc.records import RpcCall, RpcReport, Value, worker
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import digits, number, plural, start_and_versions
from distdemo.view.tables import Cell, Column, Grid


def rpc_view(report: RpcReport, sign: Signs) -> Iterator[Block]:
    """Yield the calls of a world that succeeded, and the verdict."""
    world = report.world
    count = len(report.calls)
    yield Heading(
        f"rpc {sign.dot} {plural(world.world.world_size, 'worker')} {sign.dot} TensorPipe"
    )
    yield Heading(f"Calls by {worker(0)}, times in ms")
    yield _timeline(report.calls, sign)
    if report.wrong:
        yield Summary(f"{len(report.wrong)} of {count} calls returned a wrong value.", ok=False)
    else:
        yield Summary(f"All {count} calls returned the right values.")
    note = f"Times are on {worker(0)}'s clock. PyTorch's RPC is stable and in maintenance mode."
    yield Paragraph(f"{note}\n{start_and_versions(world, report.versions)}", colours.QUIET)


def _timeline(calls: Sequence[RpcCall], sign: Signs) -> Grid:
    """Return one row per call. Values fold if one is wrong, because that text is long."""
    folds = not all(call.ok for call in calls)
    columns = [Column("Start", right=True), Column("Callee"), Column("Call")]
    grid = Grid([*columns, Column("Value", folds=folds), Column("Time", right=True)])
    for call in calls:
        value: Cell = _shown(call.value) or sign.none
        if not call.ok:
            text = f"{sign.wrong} {_shown(call.value)}, not {_shown(call.expected)}"
            value = Text(text, style=colours.WRONG)
        callee = _worker(call.callee.replace(", ", "\n"))
        start, time = (digits(1e3 * seconds) for seconds in (call.start_s, call.time_s))
        grid.rows.append([start, callee, f"{call.function} {call.what}".rstrip(), value, time])
    return grid


def _worker(name: str) -> Text:
    """Return a worker's name in its rank's color; several names have none."""
    rank = name.removeprefix("worker")
    return Text(name, style=colours.of_rank(int(rank)) if rank.isdigit() else "")


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(map(number, value)) + "]"
    return value if isinstance(value, str) else number(value)
