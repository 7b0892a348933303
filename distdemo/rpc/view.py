"""View of the calls as a timeline."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.rpc.records import RpcCall, RpcReport, Value, worker
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import number, origin, plural
from distdemo.view.tables import Cell, Column, Grid, fitting, heading


def table(report: RpcReport, console: Console) -> Group:
    """Return the report of a world that succeeded."""
    sign, world = signs(console), report.world
    parts: list[RenderableType] = [
        heading(f"rpc {sign.dot} {plural(world.world.world_size, 'worker')} {sign.dot} TensorPipe"),
        heading(f"Calls by {worker(0)}, times in ms"),
        fitting(console, lambda _: _timeline(report.calls, sign)),
        summary(report, console),
    ]
    footer = (
        f"Times are on {worker(0)}'s clock. PyTorch's RPC is stable and in maintenance mode.\n"
        f"{origin(world, report.versions)}"
    )
    return Group(*parts, Text(footer, style=colours.QUIET))


def summary(report: RpcReport, console: Console) -> Text:
    """Return the verdict in one line."""
    sign, count = signs(console), len(report.calls)
    if report.wrong:
        text = f"{sign.wrong} {len(report.wrong)} of {count} calls returned a wrong value."
        return Text(text, style=colours.WRONG)
    text = f"{sign.right} All {count} calls returned the right values."
    return Text(text, style=colours.RIGHT)


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
        times = [_milliseconds(seconds) for seconds in (each.start_s, each.time_s)]
        grid.rows.append([times[0], callee, called, value, times[1]])
    return grid


def _milliseconds(seconds: float) -> str:
    """Return milliseconds in at most four characters: ``0.15``, ``4.35``, ``14.1``, ``301``."""
    value = seconds * 1e3
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def _worker(name: str) -> Text:
    """Return a worker's name in its rank's color; several names have none."""
    rank = name.removeprefix("worker")
    return Text(name, style=colours.of_rank(int(rank)) if rank.isdigit() else "")


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(number(each) for each in value) + "]"
    return value if isinstance(value, str) else number(value)
