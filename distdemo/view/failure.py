"""Show failures: what happened, why, what to try, and the outcome of each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import shorten

from rich.text import Text

from distdemo.errors import MAX_LINE, DistdemoError
from distdemo.launcher.records import (
    Died,
    Lost,
    Outcome,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Verdict,
    WorldReport,
    headline,
    signal_name,
)
from distdemo.launcher.stacks import is_ours
from distdemo.text import cut
from distdemo.view import colours
from distdemo.view.blocks import Block, Paragraph
from distdemo.view.console import Signs, messages, show
from distdemo.view.data import rank_cell
from distdemo.view.foreign import one_line
from distdemo.view.format import duration, plural
from distdemo.view.tables import MANY, Column, Grid, grid_of

LONGEST = 160  # characters of an exception's text in a cell
EXITED = "exited without returning"
LAST_LINES = 5  # lines of output of the rank at fault


def show_error(error: DistdemoError) -> None:
    """Print an error to standard error, in three lines."""
    what, *rest = (one_line(cut(line, MAX_LINE)) for line in (error.what, error.why, error.hint))
    text = Text(what, style=colours.WRONG)
    for line in filter(None, rest):
        text.append(f"\n{line}", style="not bold default")
    show(messages(), text)


def failure(
    report: WorldReport, sign: Signs, *, traceback: bool = False, quiet: bool = False
) -> Iterator[Block]:
    """Yield the verdict of a failed world, each rank's outcome, and a traceback.

    Args:
        report: Report of the world.
        sign: Signs of the terminal.
        quiet: True for the verdict alone, and the traceback if it is asked for.
        traceback: True for the whole traceback; a user's program shows its own part of it anyway.

    Raises:
        ValueError: The world did not fail.
    """
    verdict = report.verdict
    if verdict is None:
        raise ValueError("this world did not fail")
    is_users = report.world.user_program is not None
    shown = verdict.traceback if traceback else ""
    if is_users and not (traceback or quiet):
        shown = verdict.traceback
        files = re.findall(r'^  File "(.*?)", line', shown, re.MULTILINE)
        if files and all(map(is_ours, files)):
            shown = ""  # an error in how the program was started
    hint = verdict.hint
    if verdict.traceback and not (verdict.advice or shown):
        hint = "Add --traceback to see where."
    yield Paragraph(verdict.what, colours.WRONG)
    if verdict.reason:
        yield Paragraph(verdict.reason)
    if verdict.rows:
        yield Paragraph("\n".join(verdict.rows), verbatim=True)
    if hint:
        yield Paragraph(hint)
    if not quiet:
        if not all(isinstance(outcome, Returned | Stopped) for outcome in report.outcomes):
            yield _table(report, verdict, sign)
        culprits = [] if is_users else verdict.ranks[:1]
        for rank in culprits:
            output = report.outcomes[rank].output.strip().splitlines()[-LAST_LINES:]
            if output:
                text = "\n  ".join([f"Last output of rank {rank}:", *output])
                yield Paragraph(text, colours.QUIET, verbatim=True)
    if shown.strip():
        style = "" if is_users or quiet else colours.QUIET
        yield Paragraph(shown.rstrip(), style, verbatim=is_users)


def _table(report: WorldReport, verdict: Verdict, sign: Signs) -> Grid:
    """Return one row per rank, those at fault first."""

    def reached(outcome: Outcome) -> str:
        if report.world.user_program is None:
            return outcome.phase.name
        return (outcome.last_call if has_calls else _line(outcome)) or sign.none

    def shows_line(outcome: Outcome) -> bool:
        """Return True if what a rank reached has its line."""
        where = outcome.where
        if report.world.user_program is None or where is None:
            return False
        return where.source_line == outcome.last_line if has_calls else True

    has_calls = any(outcome.last_call for outcome in report.outcomes)
    heading = "Last call" if has_calls else "Line"
    if report.world.user_program is None:
        heading = "Last phase"
    order = {rank: index for index, rank in enumerate(verdict.ranks)}
    outcomes = sorted(
        report.outcomes, key=lambda outcome: (order.get(outcome.rank, len(order)), outcome.rank)
    )
    culprit = verdict.ranks[0] if verdict.ranks else None

    def happened(outcome: Outcome) -> Text:
        at_fault = outcome.rank in order
        has_line = not shows_line(outcome)
        what = what_happened(outcome, has_line=has_line, at_fault=at_fault, culprit=culprit)
        return Text(what, colours.WRONG if at_fault else "")

    host = (Column("Host", folds=True), lambda outcome: report.hosts[outcome.rank])
    grid = grid_of(
        outcomes[:MANY],
        (Column("Rank", right=True), lambda outcome: rank_cell(outcome.rank)),
        *[host][: len(report.hosts)],
        (Column("What happened", folds=True), happened),
        (Column(heading, folds=True), reached),
        (Column("After", right=True), lambda outcome: duration(outcome.at)),
    )
    if len(outcomes) > MANY:
        more = plural(len(outcomes) - MANY, "more rank")
        grid.rows.append([sign.more, *[""] * bool(report.hosts), more])
    return grid


def _line(outcome: Outcome) -> str:
    """Return the line at which a rank was, or an empty text."""
    return str(outcome.where.source_line) if outcome.where else ""


def what_happened(
    outcome: Outcome, *, has_line: bool = True, at_fault: bool = True, culprit: int | None = None
) -> str:
    """Return what happened to a rank, in a few words.

    Args:
        outcome: Outcome of the rank.
        has_line: True to name the rank's line; False if it is shown next to it.
        at_fault: True if it is the root cause.
        culprit: Rank at fault.
    """
    line = _line(outcome)
    at = f" at {line}" if line and has_line else ""
    if isinstance(outcome, Raised):
        if outcome.consequence and not at_fault:
            return "lost a peer" if culprit is None else f"lost rank {culprit}"
        message = shorten(headline(outcome.message), LONGEST, placeholder=" ...")
        return f"{outcome.type}: {message}"
    if isinstance(outcome, Died):
        if outcome.signal is not None:
            return f"killed by {signal_name(outcome.signal)}{at}"
        return f"exited with code {outcome.exit_code}" if outcome.exit_code else EXITED
    if isinstance(outcome, TimedOut):
        if outcome.where is None:
            return "did not answer" if at_fault else "was waiting"
        if outcome.where.collective:
            return f"waiting in {outcome.where.collective}{at}"
        return at.strip() or ("still running" if line else "busy")
    if isinstance(outcome, Lost):
        return outcome.why
    if isinstance(outcome, Stopped):
        return "stopped with the other ranks"
    return EXITED if isinstance(outcome, Returned) and outcome.left else "returned"
