"""What one rank of a schedule does, round by round. No process, no data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from distdemo.trace.algorithms.plan import Plan, ScheduleError
from distdemo.trace.scheduling import Step, Transfer


@dataclass(frozen=True, slots=True)
class Role:
    """One rank in one round.

    Attributes:
        sends: its messages that carry anything.
        receives: likewise.
        fresh: chunks that it gets and did not have: there is nothing to combine them with.
        arrived: chunks that are new or changed afterwards, in order; also empty ones.
        gone: chunks that it has handed on and has no more.
    """

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    fresh: frozenset[int]
    arrived: tuple[int, ...]
    gone: tuple[int, ...]


def roles(rank: int, plan: Plan, steps: Iterable[Step] | None = None) -> Iterator[Role]:
    """What this rank does in each round.

    Args:
        rank: this one.
        plan: whose schedule it is.
        steps: others than the plan's own, as with a fault; then a rank may send what it does not
            have.

    Raises:
        ScheduleError: a rank sends a chunk that it does not have.
    """
    held = set(plan.given(rank))
    for step in plan.steps() if steps is None else steps:
        out = [each for each in step.transfers if each.src == rank]
        into = [each for each in step.transfers if each.dst == rank]
        sent = {chunk for each in out for chunk in each.chunks}
        if steps is None and not sent <= held:
            raise ScheduleError(
                f"In round {step.number} rank {rank} sends chunk {min(sent - held)}, "
                "which it does not have."
            )
        if plan.task.moved:
            held -= sent
        arrived = {chunk for each in into for chunk in each.chunks}
        fresh = frozenset(arrived - held)
        held |= arrived
        yield Role(
            tuple(each for each in out if each.elements),
            tuple(each for each in into if each.elements),
            fresh,
            tuple(sorted(arrived)),
            tuple(sorted(sent - held)) if plan.task.moved else (),
        )
