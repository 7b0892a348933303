"""``--spoil``: the message that goes wrong on purpose. Needs no torch."""

from __future__ import annotations

from itertools import islice

from distdemo.algorithms.plan import Plan
from distdemo.cli.parse import choose, rank_number, whole
from distdemo.cli.trace_options import FAULTS
from distdemo.errors import UsageError
from distdemo.programs.trace.faults import check_fault, harms, usual_fault
from distdemo.scheduling import Fault, FaultKind, Transfer

HINT = "Try --spoil drop, or --spoil drop:2:1."
PARTS = 3
FEW = 8  # messages of a round that are tried: the whole schedule is played for each


def parse_spoil(text: str | None, plan: Plan) -> Fault | None:
    """The fault: ``drop``, in round 2 ``drop:2``, of rank 1 ``drop:2:1``.

    By default of an early message that matters, or of one that matters in this round.

    Raises:
        UsageError: the plan has no such message, or going wrong so would change nothing.
    """
    if text is None:
        return None
    kind, *rest = text.split(":")
    if len(rest) >= PARTS:
        raise UsageError(
            f"--spoil {text}: that is too much.", "It is KIND, KIND:ROUND or KIND:ROUND:RANK.", HINT
        )
    known = _kind(kind)
    if not rest:
        return _usual(plan, known)
    number = whole("--spoil", rest[0], "The round is a number, from 1 on.", HINT)
    if rest[1:]:
        fault = Fault(known, number, rank_number("spoil", rest[1], plan.n))
    else:
        fault = _telling(plan, known, number) or Fault(known, number, _first(plan, number))
    check_fault(plan, fault)
    return fault


def _kind(text: str) -> FaultKind:
    chosen = choose("spoil", text, FAULTS)
    return next(kind for kind in FAULTS if kind == chosen)


def _usual(plan: Plan, kind: FaultKind) -> Fault:
    """In the first, the middle or the last round, if it matters there; else the first that does.

    A sum that goes to the wrong neighbour in a ring matters in none before the middle one, and to
    try them all takes minutes on many ranks.
    """
    last = sum(1 for _ in plan.rounds())
    rounds = dict.fromkeys((1, (last + 1) // 2, last))
    found = (_telling(plan, kind, number) for number in rounds)
    return next(filter(None, found), None) or usual_fault(plan, kind)


def _telling(plan: Plan, kind: FaultKind, number: int) -> Fault | None:
    """Of this round the first message whose fault spoils the result; None: of the first few none.

    Where ranks' numbers are combined rank 0 comes last: its first number is 0 by default, and a sum
    without it, or with it twice, is right by chance.
    """
    sent = _sent(plan, number)
    if plan.task.reduced:
        sent.sort(key=lambda each: each.src == 0)
    faults = (Fault(kind, number, each.src) for each in sent if each.reduce or kind != "twice")
    return next((fault for fault in islice(faults, FEW) if harms(plan, fault)), None)


def _first(plan: Plan, number: int) -> int:
    """Who sends first in this round; 0: nobody does, as will be told."""
    return next((each.src for each in _sent(plan, number)), 0)


def _sent(plan: Plan, number: int) -> list[Transfer]:
    """The messages of this round that carry anything."""
    steps = (step for step in plan.steps() if step.number == number)
    return [each for step in steps for each in step.transfers if each.elements]
