"""View of a run: the ranks' return values, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.launcher.records import Returned
from distdemo.run.records import RankOutput, RunReport
from distdemo.sanitizer.text import calls_text, reason, stopped_text
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.foreign import lines_of
from distdemo.view.format import duration, plural, ranks_text
from distdemo.view.tables import MANY, Cell, Column, Grid, fitting, heading, select

MAX_CHARS = 240  # of a returned value in the table


def table(
    report: RunReport, console: Console, *, whole: bool = False, calls: bool = False
) -> Group:
    """Return the report; the ranks' output was printed before it.

    Args:
        report: Report to show.
        console: Console to print on.
        whole: True to show return values in full.
        calls: True to show the ranks' calls.
    """
    sign, world = signs(console), report.world
    group = ["makes its own group"] if report.program.makes_group else []
    if world is not None and not group:
        group = [world.world.backend, world.world.device]
    title = (report.program.name, plural(report.world_size, "rank"), *group)
    parts: list[RenderableType] = [heading(f" {sign.dot} ".join(title))]
    if any(each.text for each in report.ranks):
        parts.append(fitting(console, lambda _: _returned(report, console, whole=whole)))
    if calls:
        parts.append(Text(calls_text(report.calls)))
    parts += [
        Text("\n".join((f"Warning: {each.what}", reason(each), each.rule)))
        for each in report.warnings
    ]
    if world is None or world.ok:
        parts += [Text(stopped_text(report.stopped))] if report.stopped else []
        parts.append(summary(report, console))
    if not report.made_group:
        file = report.program.name
        text = f"{file} created no group. To run a function on every rank: distdemo run {file}:NAME"
        parts.append(Text(text))
    if world is not None:
        how = f"Started by {world.start_method}: {world.start_reason}."
        versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
        parts.append(Text(f"{how}\n{versions}", style=colours.QUIET))
    return Group(*parts)


def summary(report: RunReport, console: Console) -> Text:
    """Return a one-line summary."""
    sign, world = signs(console), report.world
    if world is None:
        line = f"{sign.wrong} Interrupted. All ranks are gone, nothing was left behind."
        return Text(line, style=colours.WRONG)
    if not world.ok:
        ended = sum(isinstance(each, Returned) for each in world.outcomes)
        line = f"{sign.wrong} {ended:,} of {plural(report.world_size, 'rank')} came to the end."
        return Text(line, style=colours.WRONG)
    if not report.ok:
        line = f"{sign.wrong} {plural(len(report.warnings), 'warning')}."
        return Text(line, style=colours.WRONG)
    done = "returned" if report.program.function else "came to the end"
    size = report.world_size
    who = {1: "The rank", 2: "Both ranks"}.get(size, f"All {size:,} ranks")
    but = f"; {plural(len(report.warnings), 'warning')}" if report.warnings else ""
    but += "; their calls were not compared" if report.stopped else ""
    line = f"{sign.right} {who} {done}, in {duration(world.seconds)}{but}."
    return Text(line, style=colours.RIGHT)


def _returned(report: RunReport, console: Console, *, whole: bool) -> Grid:
    """Return one row per rank; in large worlds, one row per distinct value."""
    sign = signs(console)
    grid = Grid([Column("Rank", right=True), Column("Returned", folds=True)])
    together: dict[str, list[int]] = {}
    if len(report.ranks) > MANY:
        for one in report.ranks:
            together.setdefault(one.text, []).append(one.rank)
    firsts: Sequence[RankOutput] = [
        each for each in report.ranks if together.get(each.text, [each.rank])[0] == each.rank
    ]
    shown = frozenset(each.rank for each in firsts) if whole else None
    for each in select(firsts, shown, lambda _: False):
        if isinstance(each, int):
            grid.rows.append([sign.more])
            continue
        ranks = together.get(each.text, [each.rank])
        text = "\n".join(lines_of(each.text)) or sign.none
        if len(text) > MAX_CHARS and not whole:
            text = f"{text[:MAX_CHARS]} {sign.more}"
        style = colours.of_rank(each.rank) if len(ranks) == 1 else ""
        cells: list[Cell] = [Text(ranks_text(ranks), style=style), text]
        grid.rows.append(cells)
    return grid
