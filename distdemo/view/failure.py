"""Show failures: what happened, why, what to try, and the outcome of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from distdemo.errors import DistdemoError
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
from distdemo.view import colours
from distdemo.view.blocks import Block, Paragraph
from distdemo.view.console import Signs, messages, show
from distdemo.view.foreign import one_line
from distdemo.view.format import duration, plural
from distdemo.view.tables import Column, Grid

MANY = 16  # ranks shown
LONGEST = 160  # characters of an exception's text in a cell
EXITED = "exited without returning"
LAST_LINES = 5  # lines of output of the rank at fault


def show_error(error: DistdemoError) -> None:
    """Print an error to standard error, in three lines."""
    show(messages(), _three_lines(*map(one_line, (error.what, error.why, error.hint))))


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
    users = report.world.user_program is not None
    hint = _hint(verdict, traceback=traceback or (users and not quiet))
    yield Paragraph(verdict.what, colours.WRONG)
    for in_columns, lines in groupby(verdict.why.splitlines(), lambda line: line.startswith(" ")):
        yield Paragraph("\n".join(lines), verbatim=in_columns)
    if hint:
        yield Paragraph(hint)
    if quiet:
        if traceback and verdict.traceback:
            yield Paragraph(verdict.traceback.rstrip(), verbatim=users)
        return
    if not all(isinstance(outcome, Returned | Stopped) for outcome in report.outcomes):
        yield _table(report, verdict, sign)
    shown = verdict.traceback if traceback or users else ""
    if users and not traceback:
        shown = verdict.excerpt or verdict.traceback
    elif not users:
        yield from _last_output(report, verdict)
    if shown.strip():
        yield Paragraph(shown.rstrip(), "" if users else colours.QUIET, verbatim=users)


def _three_lines(what: str, why: str, hint: str) -> Text:
    text = Text(what, style=colours.WRONG)
    for line in (why, hint):
        if line:
            text.append(f"\n{line}", style="not bold default")
    return text


def _hint(verdict: Verdict, *, traceback: bool) -> str:
    """Return the hint, or how to show the traceback that it refers to."""
    if verdict.traceback and not traceback and "traceback" in verdict.hint:
        return "Add --traceback to see where."
    return verdict.hint


def _table(report: WorldReport, verdict: Verdict, sign: Signs) -> Grid:
    users = report.world.user_program is not None
    heading = "Last phase"
    if users:
        heading = "Last call" if any(each.last_call for each in report.outcomes) else "Line"
    grid = Grid(
        [
            Column("Rank", right=True),
            *([Column("Host", folds=True)] if report.hosts else ()),
            Column("What happened", folds=True),
            Column(heading, folds=True),
            Column("After", right=True),
        ]
    )
    outcomes, left_out = _selection(report.outcomes, verdict)
    culprit = verdict.ranks[0] if verdict.ranks else None
    for outcome in outcomes:
        at_fault = outcome.rank in verdict.ranks
        style = colours.WRONG if at_fault else ""
        reached = _reached(outcome, heading, sign)
        what = _what(outcome, reached, at_fault=at_fault, culprit=culprit)
        grid.rows.append(
            [
                Text(str(outcome.rank), style=colours.of_rank(outcome.rank)),
                *report.hosts[outcome.rank : outcome.rank + 1],
                Text(what, style=style),
                reached,
                duration(outcome.at),
            ]
        )
    if left_out:
        hidden = len(verdict.ranks) - sum(o.rank in verdict.ranks for o in outcomes)
        fault = f"{hidden:,} of them at fault" if hidden else "none of them at fault"
        more = f"{plural(left_out, 'rank')} more, {fault}"
        grid.rows.append([sign.more, *[""] * bool(report.hosts), more])
    return grid


def _reached(outcome: Outcome, heading: str, sign: Signs) -> str:
    """Return the cell of a rank in the column with this heading."""
    if heading == "Last phase":
        return outcome.phase.name
    line = outcome.where.source_line if outcome.where else ""
    return (outcome.last_call if heading == "Last call" else line) or sign.none


def _selection(outcomes: Sequence[Outcome], verdict: Verdict) -> tuple[list[Outcome], int]:
    """Return the first outcomes, starting with the ranks at fault, and the number left out."""
    order = {rank: index for index, rank in enumerate(verdict.ranks)}
    ranked = sorted(outcomes, key=lambda o: (order.get(o.rank, len(order)), o.rank))
    return ranked[:MANY], max(0, len(ranked) - MANY)


def _what(outcome: Outcome, reached: str, *, at_fault: bool, culprit: int | None) -> str:
    """Return what happened, with the rank's line unless it is in the column of what it reached."""
    line = outcome.where.source_line if outcome.where else ""
    at = "" if not line or line in reached else f" at {line}"
    if isinstance(outcome, Raised):
        if outcome.consequence and not at_fault:
            return "lost a peer" if culprit is None else f"lost rank {culprit}"
        return f"{outcome.type}: {_shortened(headline(outcome.message))}"
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
    if isinstance(outcome, Returned) and outcome.left:
        return EXITED
    return _WORDS.get(type(outcome), "unknown")


def _shortened(text: str) -> str:
    """Shorten the text to the whole words that fit in a cell."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST].rpartition(' ')[0] or text[:LONGEST]} ..."


_WORDS = {Stopped: "stopped with the other ranks", Returned: "returned"}


def _last_output(report: WorldReport, verdict: Verdict) -> Iterator[Block]:
    """Yield the last lines of output of the first rank at fault, if any."""
    if verdict.ranks:
        rank = verdict.ranks[0]
        lines = report.outcomes[rank].output.strip().splitlines()[-LAST_LINES:]
        if lines:
            yield Paragraph(f"Last output of rank {rank}:", colours.QUIET)
            yield Paragraph("\n".join(f"  {line}" for line in lines), colours.QUIET, verbatim=True)
