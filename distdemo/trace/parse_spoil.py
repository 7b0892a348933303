"""``--spoil``: the message that goes wrong on purpose. Needs no torch."""

from __future__ import annotations

from distdemo.cli.parse import choose, rank_number, whole
from distdemo.errors import UsageError
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.faults import check_fault, fault_in, usual_fault
from distdemo.trace.scheduling import Fault, FaultKind
from distdemo.trace.trace_options import FAULTS

HINT = "Try --spoil drop, or --spoil drop:2:1."
PARTS = 3


def parse_spoil(text: str | None, plan: Plan) -> Fault | None:
    """The fault: ``drop``, in round 2 ``drop:2``, of rank 1 ``drop:2:1``.

    By default of an early message that matters, or of one that matters in this round.

    Raises:
        UsageError: the plan has no such message, or it can't go wrong so.
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
        return usual_fault(plan, known)
    number = whole("--spoil", rest[0], "The round is a number, from 1 on.", HINT)
    if not rest[1:]:
        return fault_in(plan, known, number)
    fault = Fault(known, number, rank_number("spoil", rest[1], plan.n))
    check_fault(plan, fault)
    return fault


def _kind(text: str) -> FaultKind:
    chosen = choose("spoil", text, FAULTS)
    return next(kind for kind in FAULTS if kind == chosen)
