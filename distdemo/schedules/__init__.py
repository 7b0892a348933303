"""Schedules of collectives: the algorithms as data, and their registry."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.schedules import movements, reductions  # noqa: F401 - they register their algorithms
from distdemo.schedules.contract import REGISTERED, Algorithm
from distdemo.schedules.schedule import Schedule

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec


REGISTRY = tuple(sorted(REGISTERED, key=lambda algorithm: not algorithm.goal.reduced))
"""Registry of algorithms. The first one of each op is its default."""


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
    known = {algorithm.name: algorithm for algorithm in of_op(op)}
    command = op.replace("_", "-")
    if not known:
        raise UsageError(
            f"{command} has no algorithms.",
            f"These operations have some: {', '.join(ops()).replace('_', '-')}.",
            f"Try distdemo explain {command}, or distdemo trace list.",
        )
    if name is None:
        return next(iter(known.values()))
    word = name.strip().lower().replace("_", "-")
    if word not in known:
        near = get_close_matches(word, known, n=1) or list(known)
        raise UsageError(
            f"{command} has no algorithm {name!r}.",
            f"Choices: {', '.join(known)}.",
            f"Try --algorithm {near[0]}.",
        )
    return known[word]


def schedule(op: OpSpec, name: str, chunks: int | None = None) -> Schedule:
    """Return the schedule of this algorithm.

    Args:
        op: Op with its ranks, its root and the shape of one tensor or part.
        name: Name of the algorithm.
        chunks: Number of chunks, if the algorithm lets the caller choose; None for its default.
    """
    return Schedule.of(find(op.op, name), op.group_size, op.numel, op.root or 0, chunks)
