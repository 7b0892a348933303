"""View of the calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from distdemo.rpc.records import RpcCall, RpcReport, worker
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import digits, plural, start_and_versions
from distdemo.view.tables import Cell, Column, Grid


def rpc_view(report: RpcReport, sign: Signs) -> Iterator[Block]:
    """Yield the calls of a world that succeeded, and the verdict."""
    world = report.world
    count = len(report.calls)
    yield Heading(
        f"rpc {sign.dot} {plural(world.world.world_size, 'worker')} {sign.dot} TensorPipe"
    )
    yield Heading(f"Calls by {worker(0)}, times in ms")
    yield _table(report.calls, sign)
    if report.wrong:
        yield Summary(f"{len(report.wrong)} of {count} calls returned a wrong value.", ok=False)
    else:
        yield Summary(f"All {count} calls returned the right values.")
    yield Paragraph("PyTorch's RPC is stable and in maintenance mode.", colours.QUIET)
    yield Paragraph(start_and_versions(world, report.versions), colours.QUIET, is_detail=True)


def _table(calls: Sequence[RpcCall], sign: Signs) -> Grid:
    """Return one row per call. Values fold if one is wrong, because that text is long."""
    folds = not all(call.ok for call in calls)
    columns = [Column("Callee"), Column("Call"), Column("Value", folds=folds)]
    grid = Grid([*columns, Column("Time", right=True)])
    for call in calls:
        value: Cell = call.value or sign.none
        if not call.ok:
            value = Text(f"{sign.wrong} {call.value}, not {call.expected}", style=colours.WRONG)
        style = colours.of_rank(call.callees[0]) if len(call.callees) == 1 else ""
        callee = Text("\n".join(map(worker, call.callees)), style=style)
        grid.rows.append([callee, call.text, value, digits(1e3 * call.time_s)])
    return grid
