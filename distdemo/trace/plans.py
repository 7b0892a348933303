"""From what was asked for to a plan: which algorithm, in how many chunks, and what can't be traced.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.reduction import REDUCTIONS, why_undefined
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import Plan, plan_of
from distdemo.trace.faults import spoiled
from distdemo.trace.scheduling import About, Step
from distdemo.trace.tracing import TraceSpec

MOST_CHUNKS = 4096
"""Beyond that a pipeline gains nothing: its rounds are as many as chunks, and each costs α."""
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
    command = _command(op)
    if not found:
        names = ", ".join(map(_command, algorithms.ops()))
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
    check_chunks((chosen,), spec.chunks)
    op = spec.op
    return plan_of(chosen, op.group_size, op.numel, op.root or 0, spec.chunks)


def steps_of(spec: TraceSpec, plan: Plan) -> Iterator[Step] | None:
    """The steps that are played if not the plan's own: those with the fault; None: the plan's."""
    return None if spec.fault is None else spoiled(plan, spec.fault)


def divides(spec: OpSpec) -> bool:
    """Whether all that is held at the end is divided then."""
    return spec.reduce_op == "avg" and spec.group_size > 1


def check_chunks(found: Sequence[Algorithm], chunks: int | None) -> None:
    """Refuse a number of chunks that none of these algorithms of one op can have.

    Raises:
        UsageError: what and why.
    """
    if chunks is None:
        return
    if not any(each.chunked for each in found):
        raise _fixed(found, chunks)
    if not 1 <= chunks <= MOST_CHUNKS:
        raise UsageError(
            f"--chunks {chunks} is out of range: 1 to {MOST_CHUNKS:,}.",
            "A tensor is cut in one chunk at least, and each more costs a round.",
            "Try --chunks 8.",
        )


def _fixed(found: Sequence[Algorithm], chunks: int) -> UsageError:
    """The refusal where these cut as they must, with those that leave it open."""
    op, names = found[0].op, ", ".join(each.name for each in found)
    they = "cuts as it must" if len(found) == 1 else "cut as they must"
    open_to = [each for each in algorithms.REGISTRY if each.chunked]
    here = [each.name for each in open_to if each.op == op]
    others = dict.fromkeys(f"{_command(each.op)} {each.name}" for each in open_to)
    return UsageError(
        f"--chunks {chunks}: {names} of {_command(op)} {they}.",
        f"These leave it open: {', '.join(others)}.",
        f"Leave it out, or take --algorithm {here[0]}." if here else "Leave it out.",
    )


def _command(op: str) -> str:
    return op.replace("_", "-")


def check_traceable(spec: OpSpec) -> None:
    """Refuse what no rank could run: the ranks reduce by themselves, with torch's arithmetic.

    Raises:
        UsageError: torch has no such arithmetic, or the op was asked for in a form of its own.
    """
    why = None if spec.reduce_op is None else _no_arithmetic(spec.dtype, spec.reduce_op)
    if why is not None:
        fitting = [name for name in DTYPES if not _no_arithmetic(name, spec.reduce_op or "sum")]
        raise UsageError(
            f"A schedule can't reduce {spec.dtype} by {spec.reduce_op}.",
            why,
            f"These dtypes work: {', '.join(fitting)}.",
        )
    if spec.objects or spec.sizes is not None or spec.splits is not None:
        raise UsageError(
            "Only tensors of one shape can be traced.",
            "A schedule cuts what ranks hold in equal parts, the same on every rank.",
            "Leave --objects, --uneven, --sizes and --splits out.",
        )


def _no_arithmetic(dtype: str, reduce_op: str) -> str | None:
    """Why no rank could reduce such elements so; None: it can."""
    if reduce_op in _NO_ARITHMETIC.get(dtype, ()):
        return "The ranks reduce what they receive by themselves; torch has no such arithmetic."
    return why_undefined(DTYPES[dtype].kind, reduce_op)


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
