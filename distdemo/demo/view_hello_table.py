"""Every rank's introduction as a table."""

from __future__ import annotations

from rich.console import Console, Group
from rich.text import Text

from distdemo.demo.reports import HelloReport
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.frame import heading
from distdemo.view.grid import Column, Grid, fitting
from distdemo.view.numbers import duration, plural
from distdemo.view.selection import select


def hello_table(
    report: HelloReport, console: Console, ranks: frozenset[int] | None = None
) -> Group:
    """Who every rank is, and whether it heard from all the others."""
    sign = signs(console)
    size = len(report.ranks)
    names = ("Rank", "of", "Process", "Host", "Backend", "Device", "Joined in", "Heard from")
    numbers = ("Rank", "of", "Process")
    grid = Grid([Column(name, right=name in numbers, folds=name == "Host") for name in names])
    for each in select(report.ranks, ranks, lambda one: one.heard_from != size):
        if isinstance(each, int):
            grid.rows.append([sign.more])
            continue
        grid.rows.append(
            [
                Text(str(each.rank), style=colours.of_rank(each.rank)),
                str(each.world_size),
                str(each.pid),
                each.host,
                each.backend,
                each.device,
                duration(each.startup_seconds),
                f"{each.heard_from} of {size}",
            ]
        )
    slowest = max(each.startup_seconds for each in report.ranks)
    up = f"{plural(size, 'rank')} joined within {duration(slowest)} of their start"
    line = f"{sign.right} {up}; each heard from all."
    verdict = Text(line, style=colours.RIGHT)
    if not report.ok:
        verdict = Text(f"{sign.wrong} Not every rank heard from all.", style=colours.WRONG)
    world = report.world
    how = f"Started by {world.start_method}: {world.start_reason}."
    if world.engine != "local":
        how = f"Ranks of a world that others started too ({world.engine})."
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    quiet = Text(f"{how}\n{versions}", style=colours.QUIET)
    table = fitting(console, lambda _: grid)
    return Group(heading(f"hello {sign.dot} {plural(size, 'rank')}"), table, verdict, quiet)
