"""Which case ended a world that many cases shared, and what its ranks have to say.

A rank may be ahead of the others: what it did in its own case is no fault of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdemo.check.check import Finding, case_of
from distdemo.launcher.records import (
    Died,
    Lost,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    WorldReport,
    headline,
)

LOST = "lost its peer: "


def guilty_case(
    numbers: Sequence[int],
    left: Sequence[int],
    heard: Mapping[int, Sequence[Finding]],
    report: WorldReport,
) -> int:
    """The number of the case that is to blame.

    Args:
        numbers: of the world's cases, in the order in which they ran.
        left: those that not every rank came through; at least one.
        heard: what the ranks said of each.
        report: how the world ended.
    """
    wrong = (number for number in numbers if any(each.wrong for each in heard[number]))
    first_wrong = next(wrong, None)
    if first_wrong is not None:
        return first_wrong
    places = [left.index(case) for case in _cases_at_fault(report) if case in left]
    return left[min(places, default=0)]


def _cases_at_fault(report: WorldReport) -> list[int]:
    """The cases in which the ranks at fault were; of all that had not ended, if none is."""
    verdict = report.verdict
    first = report.outcomes[verdict.ranks[0]] if verdict and verdict.ranks else None
    if isinstance(first, Raised | Died | Lost):
        return _case_numbers([first])
    return _case_numbers([each for each in report.outcomes if not isinstance(each, Returned)])


def _case_numbers(outcomes: Sequence[Outcome]) -> list[int]:
    found = (case_of(outcome.phase.name) for outcome in outcomes)
    return [number for number in found if number is not None]


def words_of(outcome: Outcome) -> str:
    """How a rank ended, if it did so by itself."""
    if isinstance(outcome, Died):
        how = f"signal {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
        return f"rank {outcome.rank}: ended by {how}"
    if isinstance(outcome, Lost):
        return f"rank {outcome.rank}: {outcome.why}"
    if isinstance(outcome, Raised):
        lost = LOST if outcome.consequence else ""
        return f"rank {outcome.rank}: {outcome.type}: {lost}{headline(outcome.message)}"
    if isinstance(outcome, TimedOut):
        where = outcome.where
        if where is None:
            return f"rank {outcome.rank}: did not answer"
        place = where.collective or where.place
        return f"rank {outcome.rank}: still {f'in {place}' if place else 'busy'}"
    return ""
