"""Schedules of collectives: the algorithms as data, one file per op, and their registry."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.schedules import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from distdemo.schedules.contract import Algorithm
from distdemo.schedules.schedule import Schedule

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec

REGISTRY: tuple[Algorithm, ...] = (
    *all_reduce.ALGORITHMS,
    *reduce_scatter.ALGORITHMS,
    *all_gather.ALGORITHMS,
    *broadcast.ALGORITHMS,
    *reduce.ALGORITHMS,
    *scatter.ALGORITHMS,
    *gather.ALGORITHMS,
    *all_to_all.ALGORITHMS,
)
"""Registry of algorithms. The first one of each op is its default."""

if len({(each.op, each.name) for each in REGISTRY}) != len(REGISTRY):
    raise RuntimeError("two algorithms of one op have the same name")


def ops() -> tuple[str, ...]:
    """Return torch's names of the ops that have algorithms."""
    return tuple(dict.fromkeys(each.op for each in REGISTRY))


def of_op(op: str) -> tuple[Algorithm, ...]:
    """Return the algorithms of this op, given torch's name of it."""
    return tuple(each for each in REGISTRY if each.op == op)


def find(op: str, name: str | None = None) -> Algorithm:
    """Return the algorithm of this op with this name, by default the op's first.

    Raises:
        UsageError: There is none.
    """
    known = {each.name: each for each in of_op(op)}
    command = op.replace("_", "-")
    if not known:
        raise UsageError(
            f"{command} has no algorithms.",
            f"These operations have some: {', '.join(each.replace('_', '-') for each in ops())}.",
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
