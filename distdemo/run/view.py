"""View of a run: the ranks' output and return values, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.text import Text

from distdemo.calls.records import LateRank
from distdemo.calls.text import calls_text, gap_texts, headline, replicas_text
from distdemo.calls.view import finding_view
from distdemo.errors import ALL_EXITED
from distdemo.launcher.records import Returned
from distdemo.run.output import captured_output
from distdemo.run.records import RunReport
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.foreign import lines_of
from distdemo.view.format import (
    duration,
    plural,
    ranks_text,
    some,
    start_and_versions,
)
from distdemo.view.tables import MANY, Column, Grid

MAX_LATE = 12  # rows in the table of late ranks
MAX_CHARS = 240  # of a returned value in the table


def run_view(
    report: RunReport,
    sign: Signs,
    *,
    whole: bool = False,
    calls: bool = False,
    captured: bool = False,
    is_compared: bool = True,
    functions: Sequence[str] = (),
) -> Iterator[Block]:
    """Yield the ranks' output, their return values, calls, warnings and the verdict.

    Args:
        report: Report to show.
        sign: Signs of the terminal.
        whole: True to show output and return values in full.
        calls: True to show the ranks' calls.
        captured: True to show the ranks' output, which was not printed yet.
        is_compared: True if the sanitizer has recorded the calls.
        functions: Functions that the program's file defines, if it calls nothing outside them.
    """
    world = report.world
    if captured:
        yield from captured_output(report.ranks, sign, whole=whole)
    is_idle = not (report.program.function or report.calls or report.gaps)
    is_idle = is_idle and report.ok and is_compared
    group = ["creates its own group"] if report.program.creates_group and not is_idle else []
    if world is not None and not report.program.creates_group:
        group = [world.world.backend, world.world.device]
    title = (report.program.name, plural(report.world_size, "rank"), *group)
    yield Heading(f" {sign.dot} ".join(title))
    if any(own.text for own in report.ranks):
        yield _returned(report, sign, whole=whole)
    if calls:
        yield Paragraph(calls_text(report.calls), verbatim=True)
        if report.late:
            yield Heading("Late ranks, and how long other ranks waited for them")
            yield _late_ranks(report.late, sign)
    for finding in (*report.warnings, *report.notes):
        for paragraph in finding_view(finding):
            yield replace(paragraph, is_problem=finding.level == "warn")
    for text in gap_texts(report.stopped, report.gaps):
        yield Paragraph(text, is_problem=True)
    if report.rpc:
        yield Paragraph("Calls through RPC were not compared, only init_rpc and rpc.shutdown.")
    if report.replicas is not None and world is not None and world.ok:
        yield Paragraph(replicas_text(report.replicas))
    off = [kind for kind, level in report.levels.items() if level == "off"]
    if off:
        yield Paragraph(f"Findings that are off: {', '.join(off)}.")
    is_unsure = report.ok and not report.complete
    yield Summary(_verdict(report), None if is_unsure else report.ok, "!")
    if is_idle:
        idle = "made no call of torch.distributed. To run a function on every rank:"
        if functions:
            idle = f"defines {some(functions)}, but calls no function. To run one on every rank:"
        yield Paragraph(f"{report.program.home} {idle}")
        typed = report.program.file or report.program.home
        name = functions[0] if len(functions) == 1 else "NAME"
        yield Paragraph(f"distdemo run {typed}:{name}", verbatim=True)
    if world is not None:
        yield Paragraph(start_and_versions(world, report.versions), colours.QUIET, is_detail=True)


def _verdict(report: RunReport) -> str:
    world, size = report.world, report.world_size
    if world is None:
        return f"Interrupted. {ALL_EXITED}"
    if report.findings:
        return headline(report.findings[0])
    problems = [plural(len(report.warnings), "warning")] if report.warnings else []
    problems += _incomplete(report) if world.ok else []
    if report.strict and problems and world.ok:
        problems[-1] += " (a failure with --strict)"
    if not world.ok:
        returned = sum(isinstance(outcome, Returned) for outcome in world.outcomes)
        ended = f"{returned:,} of {plural(size, 'rank')} finished"
    else:
        done = "returned" if report.program.function else "finished"
        who = {1: "The rank", 2: "Both ranks"}.get(size, f"All {size:,} ranks")
        ended = f"{who} {done}, in {duration(world.seconds)}"
    return f"{'; '.join([ended, *problems])}."


def _incomplete(report: RunReport) -> list[str]:
    """Return what was asked and not looked at, in short."""
    asked = {gap.what for gap in report.gaps if gap.is_asked}
    replicas = report.replicas
    lacks = replicas is not None and not replace(replicas, unmatched=()).complete
    what = {
        "their calls were not compared to the end": report.stopped,
        "not all calls were compared": "calls" in asked,
        "not all tensors were watched": "buffers" in asked,
        "gradients were not looked at to the end": "gradients" in asked,
        "not all parameters were compared": lacks or asked & {"tensors", "replicas"},
        "a pattern of --except matches nothing": replicas is not None and replicas.unmatched,
    }
    return [text for text, is_so in what.items() if is_so]


def _late_ranks(late: Sequence[LateRank], sign: Signs) -> Grid:
    """Return one row per line and late rank, the longest waits first."""
    numbers = [Column(name, right=True) for name in ("Rank", "Last", "Median", "Total")]
    grid = Grid([Column("Call"), Column("Line", folds=True), *numbers])
    for line in late[:MAX_LATE]:
        last = f"{line.last:,} of {line.calls:,}"
        waited = (duration(line.median_s), duration(line.total_s))
        rank = Text(str(line.rank), style=colours.of_rank(line.rank))
        grid.rows.append([line.op, str(line.source_line), rank, last, *waited])
    if len(late) > MAX_LATE:
        grid.rows.append([sign.more])
    return grid


def _returned(report: RunReport, sign: Signs, *, whole: bool) -> Grid:
    """Return one row per rank; in large worlds, one row per distinct value."""
    grid = Grid([Column("Rank", right=True), Column("Returned", folds=True)])
    ranks_by_value: dict[Any, list[int]] = {}
    for own in report.ranks:
        key = own.text if len(report.ranks) > MANY else (own.rank, own.text)
        ranks_by_value.setdefault(key, []).append(own.rank)
    texts = {own.rank: own.text for own in report.ranks}
    shown = list(ranks_by_value.values()) if whole else list(ranks_by_value.values())[:MANY]
    for ranks in shown:
        text = "\n".join(lines_of(texts[ranks[0]])) or sign.none
        if len(text) > MAX_CHARS and not whole:
            text = f"{text[:MAX_CHARS]} {sign.more}"
        style = colours.of_rank(ranks[0]) if len(ranks) == 1 else ""
        grid.rows.append([Text(ranks_text(ranks), style=style), text])
    if len(shown) < len(ranks_by_value):
        grid.rows.append([sign.more])
    return grid
