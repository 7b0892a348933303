"""From what was asked for to a plan: which algorithm, in how many chunks, and what can't be traced.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from distdemo import algorithms
from distdemo.algorithms.contract import Algorithm
from distdemo.algorithms.plan import Plan, plan_of
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.model import OpSpec
from distdemo.ops.reduction import REDUCTIONS
from distdemo.programs.trace.faults import spoiled
from distdemo.scheduling import About, Step
from distdemo.tracing import TraceSpec

_NO_ARITHMETIC = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), frozenset(REDUCTIONS)),
    **dict.fromkeys(
        ("uint16", "uint32", "uint64"), frozenset({"sum", "avg", "premul_sum", "min", "max"})
    ),
}
"""Reduce ops that torch has no elementwise function for, by dtype (seen on 2.8, 2.13 and 2.15)."""


def algorithm(op: str, name: str | None = None) -> Algorithm:
    """The algorithm of this op with this name; None: the op's first.

    Args:
        op: torch's name of it.
        name: as people write it.

    Raises:
        UsageError: there is none.
    """
    found = {each.name: each for each in algorithms.of_op(op)}
    command = op.replace("_", "-")
    if not found:
        names = ", ".join(each.replace("_", "-") for each in algorithms.ops())
        raise UsageError(
            f"There is no algorithm for {command}.",
            f"These ops have some: {names}.",
            "Try distdemo trace --list.",
        )
    if name is None:
        return next(iter(found.values()))
    if name not in found:
        close = get_close_matches(name, found, n=1) or [next(iter(found))]
        raise UsageError(
            f"{command} has no algorithm {name}.",
            f"It has {', '.join(found)}.",
            f"Try --algorithm {close[0]}.",
        )
    return found[name]


def plan_for(spec: TraceSpec) -> Plan:
    """The plan of this run, without its fault.

    Raises:
        UsageError: there is no such algorithm, or it leaves no choice of chunks.
    """
    chosen = algorithm(spec.op.op, spec.algorithm)
    check_chunks(chosen, spec.chunks)
    op = spec.op
    return plan_of(chosen, op.world_size, op.numel, op.root or 0, spec.chunks)


def steps_of(spec: TraceSpec, plan: Plan) -> Iterator[Step] | None:
    """The steps that are played if not the plan's own: those with the fault; None: the plan's."""
    return None if spec.fault is None else spoiled(plan, spec.fault)


def divides(spec: OpSpec) -> bool:
    """Whether all that is held at the end is divided then."""
    return spec.reduce_op == "avg" and spec.world_size > 1


def check_chunks(chosen: Algorithm, chunks: int | None) -> None:
    """Refuse a number of chunks that this algorithm can't have.

    Raises:
        UsageError: what and why.
    """
    if chunks is None:
        return
    if not chosen.chunked:
        able = [each.name for each in algorithms.of_op(chosen.op) if each.chunked]
        raise UsageError(
            f"{chosen.name} cuts the tensor as it has to: --chunks has no meaning for it.",
            "Only an algorithm that passes chunks along a chain leaves their number open.",
            f"Try --algorithm {able[0]}." if able else "Leave --chunks out.",
        )
    if chunks < 1:
        raise UsageError(
            f"A tensor can't be cut in {chunks} chunks.",
            "One is the least: the whole tensor.",
            "Try --chunks 1.",
        )


def check_traceable(spec: OpSpec) -> None:
    """Refuse what no rank could run: the ranks reduce by themselves, with torch's arithmetic.

    Raises:
        UsageError: torch has no such arithmetic, or the op was asked for in a form of its own.
    """
    if spec.reduce_op is not None and spec.reduce_op in _NO_ARITHMETIC.get(spec.dtype, ()):
        kind = DTYPES[spec.dtype].kind
        raise UsageError(
            f"A schedule can't reduce {spec.dtype} by {spec.reduce_op}.",
            "The ranks reduce what they receive by themselves, and torch has no such arithmetic.",
            f"Try --dtype {'int32' if kind == 'int' else 'bfloat16'}.",
        )
    if spec.objects or spec.sizes is not None or spec.splits is not None:
        raise UsageError(
            "Only tensors of one shape can be traced.",
            "A schedule cuts what ranks hold in equal parts, the same on every rank.",
            "Leave --objects, --uneven, --sizes and --splits out.",
        )


def about(chosen: Algorithm) -> About:
    """The algorithm in words."""
    formulas = chosen.formulas
    named = (
        ("rounds", formulas.rounds),
        ("sent", formulas.sent),
        ("busiest", formulas.busiest),
        ("total", formulas.total),
    )
    words = tuple((name, formula.words) for name, formula in named)
    return About(chosen.name, chosen.summary, chosen.source, words)
