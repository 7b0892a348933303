"""Schedules with one message gone wrong: on purpose, to see that it is noticed, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdemo.algorithms.plan import Plan
from distdemo.errors import UsageError
from distdemo.programs.trace.board import contributions
from distdemo.scheduling import Fault, FaultKind, Step, Transfer


def spoiled(plan: Plan, fault: Fault) -> Iterator[Step]:
    """The plan's steps, one of them with the fault."""
    for step in plan.steps():
        if step.number != fault.round:
            yield step
            continue
        found = [
            other
            for each in step.transfers
            for other in (_wrong(each, fault, plan.n) if each.src == fault.src else (each,))
        ]
        yield replace(step, transfers=tuple(found))


def _wrong(transfer: Transfer, fault: Fault, n: int) -> tuple[Transfer, ...]:
    if fault.kind == "drop":
        return ()
    if fault.kind == "twice":
        return (transfer, transfer)
    return (replace(transfer, dst=_beside(transfer, n)),)


def _beside(transfer: Transfer, n: int) -> int:
    """The rank after the right one; the sender itself is passed over."""
    beside = (transfer.dst + 1) % n
    return (beside + 1) % n if beside == transfer.src else beside


def check_fault(plan: Plan, fault: Fault) -> None:
    """Refuse a fault that this plan can't have.

    Raises:
        UsageError: there is no such message, or going wrong so would change nothing.
    """
    step = next((each for each in plan.steps() if each.number == fault.round), None)
    if step is None:
        last = sum(1 for _ in plan.rounds())
        raise UsageError(
            f"There is no round {fault.round} to spoil.",
            f"{plan.algorithm.name} on {plan.n} ranks has {last} rounds.",
            f"Try --spoil {fault.kind}." if last else "Try more ranks.",
        )
    sent = [each for each in step.transfers if each.src == fault.src and each.elements]
    if not sent:
        senders = ", ".join(str(each.src) for each in step.transfers if each.elements)
        raise UsageError(
            f"Rank {fault.src} sends nothing in round {fault.round}.",
            f"In this round these send: {senders or 'none'}.",
            f"Try --spoil {fault.kind}:{fault.round}:{senders.split(',')[0]}."
            if senders
            else "Try a larger tensor.",
        )
    if fault.kind == "twice" and not sent[0].reduce:
        raise UsageError(
            f"Round {fault.round} copies: what comes twice is the same as once.",
            "Only what is reduced can be reduced twice.",
            "Try --spoil drop, or an algorithm and a round that reduce.",
        )
    if fault.kind == "neighbour" and plan.n < 3:
        raise UsageError(
            "Two ranks have no wrong neighbour.",
            "The rank after the right one is the sender itself.",
            "Try -n 3, or --spoil drop.",
        )


def usual_fault(plan: Plan, kind: FaultKind) -> Fault:
    """The fault that is made if nobody says in which message: the first that spoils the result.

    Not each does: a sum that goes to the wrong neighbour in a ring's first round meets there the
    rest of it later, and all is well in the end.

    Raises:
        UsageError: the plan has no such message.
    """
    for step in plan.steps():
        for each in step.transfers:
            fault = Fault(kind, step.number, each.src)
            if each.elements and (kind != "twice" or each.reduce) and harms(plan, fault):
                return fault
    raise UsageError(
        f"Nothing here can be spoiled by {kind}.",
        "No message is such that the result would be another one.",
        "Try more ranks, a larger tensor, or --spoil drop.",
    )


def harms(plan: Plan, fault: Fault) -> bool:
    """Whether any rank ends with other contributions than it should."""
    board = contributions(plan, forgiving=True)
    for step in spoiled(plan, fault):
        board.play(step)
    return any(
        board.held[rank].get(chunk) != plan.complete(chunk)
        for rank in range(plan.n)
        for chunk in plan.due(rank)
    )
