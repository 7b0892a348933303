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
    world, count = report.world, len(report.calls)
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
    for each in calls:
        value: Cell = _shown(each.value) or sign.none
        if not each.ok:
            text = f"{sign.wrong} {_shown(each.value)}, not {_shown(each.expected)}"
            value = Text(text, style=colours.WRONG)
        callee = _worker(each.callee.replace(", ", "\n"))
        called = f"{each.function} {each.what}".rstrip()
        times = [digits(1e3 * seconds) for seconds in (each.start_s, each.time_s)]
        grid.rows.append([times[0], callee, called, value, times[1]])
    return grid


def _worker(name: str) -> Text:
    """Return a worker's name in its rank's color; several names have none."""
    rank = name.removeprefix("worker")
    return Text(name, style=colours.of_rank(int(rank)) if rank.isdigit() else "")


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(number(each) for each in value) + "]"
    return value if isinstance(value, str) else number(value)
