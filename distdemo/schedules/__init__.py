"""Schedules of collectives: the algorithms as data, their registry, and what can't run them.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from distdemo import backends, words
from distdemo import ops as operations
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.reduction import why_undefined
from distdemo.ops.spec import OpSpec
from distdemo.schedules import movements, reductions  # noqa: F401 - they register their algorithms
from distdemo.schedules.contract import REGISTERED, Algorithm
from distdemo.schedules.schedule import Schedule

REGISTRY = tuple(sorted(REGISTERED, key=lambda algorithm: not algorithm.goal.reduced))
"""Registry of algorithms. The first one of each op is its default."""
_OTHERS = {
    words.letters(other): words.letters(own) for other, own in words.meanings("algorithm").items()
}
NO_ARITHMETIC = {"float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"}
"""Dtypes for which torch lacks elementwise functions to reduce with (2.8, 2.13 and 2.15)."""


def ops() -> tuple[str, ...]:
    """Return torch's names of the ops that have algorithms."""
    return tuple(dict.fromkeys(algorithm.op for algorithm in REGISTRY))


def of_op(op: str) -> tuple[Algorithm, ...]:
    """Return the algorithms of this op, given torch's name of it."""
    return tuple(algorithm for algorithm in REGISTRY if algorithm.op == op)


def find(op: str, name: str | None = None) -> Algorithm:
    """Return the algorithm of this op with this name, by default the op's first.

    Raises:
        UsageError: There is none.
    """
    known = of_op(op)
    command = op.replace("_", "-")
    if not known:
        raise UsageError(
            f"{command} has no algorithms.",
            f"These operations have some: {', '.join(ops()).replace('_', '-')}.",
            f"Try distdemo explain {command}, or distdemo trace list.",
        )
    if name is None:
        return known[0]
    algorithm = _named(name, known)
    if algorithm is None:
        what = f"{command} has no algorithm {name!r}."
        names = [algorithm.name for algorithm in known]
        near = words.closest(name, names)
        if near:
            raise UsageError(what, hint=f"Did you mean --algorithm {' or '.join(near)}?")
        others = [other for other in ops() if _named(name, of_op(other))]
        why = f"Choices: {', '.join(names)}."
        if others:
            why += f" Operations that have it: {', '.join(others).replace('_', '-')}."
        raise UsageError(what, why, "Use one of them.")
    return algorithm


def find_anywhere(name: str) -> Algorithm | None:
    """Return the algorithm with this name of the first op that has one, or None."""
    return next(filter(None, (_named(name, of_op(op)) for op in ops())), None)


def _named(name: str, known: Iterable[Algorithm]) -> Algorithm | None:
    """Return the algorithm with this name; if there is none, the one that it is another name of."""
    by_letters = {words.letters(algorithm.name): algorithm for algorithm in known}
    typed = words.letters(name)
    return by_letters.get(typed) or by_letters.get(_OTHERS.get(typed, ""))


def schedule(op: OpSpec, name: str) -> Schedule:
    """Return the schedule of this algorithm.

    Args:
        op: Op with its ranks, its root and the shape of one tensor or part.
        name: Name of the algorithm.
    """
    return Schedule.of(find(op.op, name), op.group_size, op.numel, op.root or 0)


def check_arithmetic(spec: OpSpec) -> None:
    """Raise `UsageError` if torch has no arithmetic to reduce this dtype with; the ranks use it."""
    if spec.reduce_op is None:
        return
    reason = why_undefined(DTYPES[spec.dtype].kind, spec.reduce_op)
    if spec.dtype in NO_ARITHMETIC or spec.reduce_op == "premul_sum":
        reason = "The ranks reduce with torch's elementwise functions, and torch has none for it."
    if reason is not None:
        what = f"A schedule can't reduce {spec.dtype} by {spec.reduce_op}."
        raise UsageError(what, reason, "Try --dtype float32 --reduce-op sum.")


def check_backend(backend: str, device: str, n: int) -> None:
    """Raise `UsageError` if the backend can't send from one rank to another."""
    p2p = operations.REGISTRY["p2p"]
    message = OpSpec(p2p.name, n, dtype="uint8", shape=(1,), src=0, dst=1, pattern="pair")
    reason = backends.REGISTRY[backend].why_unsupported(p2p, message, device) if n > 1 else None
    if reason is not None:
        raise UsageError(
            f"{backend} can't send from one rank to another.", reason, "Try --backend gloo."
        )
