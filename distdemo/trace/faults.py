"""Schedules with one message gone wrong: on purpose, to see that it is noticed, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain

from distdemo.errors import UsageError
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.board import contributions
from distdemo.trace.scheduling import Fault, FaultKind, Step, Transfer

FEW = 8  # messages of a round that are tried first: the schedule is played for each


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
    message = _message(plan, fault)
    if fault.kind == "twice" and not message.reduce:
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


def _message(plan: Plan, fault: Fault) -> Transfer:
    """That goes wrong; refuses a rank that sends none in this round."""
    step = _round(plan, fault)
    carrying = [each for each in step.transfers if each.elements]
    sent = next((each for each in carrying if each.src == fault.src), None)
    if sent is not None:
        return sent
    senders = ", ".join(str(each.src) for each in carrying)
    other = f"Try --spoil {fault.kind}:{fault.round}:{carrying[0].src}." if carrying else ""
    raise UsageError(
        f"Rank {fault.src} sends nothing in round {fault.round}.",
        f"In this round these send: {senders or 'none'}.",
        other or "Try a larger tensor.",
    )


def _round(plan: Plan, fault: Fault) -> Step:
    """In which it happens; refuses one that there is not."""
    step = next((each for each in plan.steps() if each.number == fault.round), None)
    if step is not None:
        return step
    last = sum(1 for _ in plan.rounds())
    raise UsageError(
        f"There is no round {fault.round} to spoil.",
        f"{plan.algorithm.name} on {plan.n} ranks has {last} rounds.",
        f"Try --spoil {fault.kind}." if last else "Try more ranks.",
    )


# ----------------------------------------------------------------------------- which message


def usual_fault(plan: Plan, kind: FaultKind) -> Fault:
    """The fault that is made if nobody says in which message: an early one that spoils the result.

    Not each does: a sum that goes to the wrong neighbour early in a ring meets there the rest of it
    later, and all is well in the end. So a few messages of the first, the middle and the last round
    are tried before all of them.

    Raises:
        UsageError: the plan has no such message.
    """
    last = sum(1 for _ in plan.rounds())
    likely = {1, (last + 1) // 2, last}
    early = (step for step in plan.steps() if step.number in likely)
    few = (fault for step in early for fault in _faults(plan, kind, step)[:FEW])
    every = (fault for step in plan.steps() for fault in _faults(plan, kind, step))
    found = next((fault for fault in chain(few, every) if harms(plan, fault)), None)
    if found is None:
        raise UsageError(
            f"Nothing here can be spoiled by {kind}.",
            "No message is such that the result would be another one.",
            "Try more ranks." if kind == "drop" or plan.n == 1 else "Try --spoil drop.",
        )
    return found


def fault_in(plan: Plan, kind: FaultKind, number: int) -> Fault:
    """The fault of this round: in the first of a few messages that spoils the result, if any does.

    Raises:
        UsageError: there is no such round, or it has no message that can go wrong so.
    """
    step = next((each for each in plan.steps() if each.number == number), Step(number, "", ()))
    fitting = _faults(plan, kind, step)
    chosen = next((fault for fault in fitting[:FEW] if harms(plan, fault)), None)
    if chosen is None:
        senders = [each.src for each in (*fitting, *_faults(plan, "drop", step))]
        chosen = Fault(kind, number, senders[0] if senders else 0)
        check_fault(plan, chosen)
    return chosen


def _faults(plan: Plan, kind: FaultKind, step: Step) -> list[Fault]:
    """One for each message of this round that can go wrong so.

    Where ranks' numbers are combined rank 0 comes last: its first number is 0 by default, and a sum
    without it, or with it twice, is right by chance.
    """
    sent = [each for each in step.transfers if each.elements and (each.reduce or kind != "twice")]
    if plan.task.reduced:
        sent.sort(key=lambda each: each.src == 0)
    return [Fault(kind, step.number, each.src) for each in sent]


def harms(plan: Plan, fault: Fault) -> bool:
    """Whether any rank ends with other contributions than it should.

    Chunks have nothing to do with each other: only those of the message are played.
    """
    message = (
        each for step in plan.steps() if step.number == fault.round for each in step.transfers
    )
    touched = {chunk for each in message if each.src == fault.src for chunk in each.chunks}
    board = contributions(plan, forgiving=True)
    for step in spoiled(plan, fault):
        board.play(replace(step, transfers=tuple(_only(touched, step))))
    return any(
        board.held[rank].get(chunk) != plan.complete(chunk)
        for rank in range(plan.n)
        for chunk in touched.intersection(plan.due(rank))
    )


def _only(chunks: Collection[int], step: Step) -> Iterator[Transfer]:
    """The messages of a round, with these chunks alone."""
    for each in step.transfers:
        kept = tuple(chunk for chunk in each.chunks if chunk in chunks)
        if kept:
            yield replace(each, chunks=kept)
