"""What each op should do, in a line of plain Python each, whatever the pieces are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec

Held = list[list[Any]]
"""By rank and piece: a piece is a list of numbers, or an object."""

FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "avg": operator.add,
    "premul_sum": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


def first_pieces(held: Held) -> list[Any]:
    return [pieces[0] for pieces in held]


def neighbours(rank: int, n: int) -> list[int]:
    """The left one and the right one; between two ranks they are the same."""
    left, right = (rank - 1) % n, (rank + 1) % n
    return [left] if left == right else [left, right]


def peer_to_peer(rank: int, held: Held, spec: OpSpec) -> list[Any]:
    n = spec.group_size
    if spec.pattern == "ring":
        return [held[(rank - 1) % n][0]]
    if spec.pattern == "exchange":
        return [held[peer][0] for peer in neighbours(rank, n)]
    return [held[spec.src or 0][0] if rank == spec.dst else held[rank][0]]


SHOULD: dict[str, Callable[[int, Held, OpSpec], list[Any] | None]] = {
    "broadcast": lambda rank, held, spec: [held[spec.root or 0][0]],
    "reduce": lambda rank, held, spec: (
        [folded(first_pieces(held), spec)] if rank == spec.root else None
    ),
    "all_reduce": lambda rank, held, spec: [folded(first_pieces(held), spec)],
    "scatter": lambda rank, held, spec: [held[spec.root or 0][rank]],
    "gather": lambda rank, held, spec: first_pieces(held) if rank == spec.root else [],
    "all_gather": lambda rank, held, spec: first_pieces(held),
    "reduce_scatter": lambda rank, held, spec: [folded([each[rank] for each in held], spec)],
    "all_to_all": lambda rank, held, spec: [each[rank] for each in held],
    "barrier": lambda rank, held, spec: [],
    "p2p": peer_to_peer,
}
"""What a rank should hold after each op, from what all ranks held before; None: undefined."""


def folded(rows: list[list[Any]], spec: OpSpec) -> list[Any]:
    """The rows reduced, without rounding and without limits."""
    combine = FOLDS[spec.reduce_op or "sum"]
    factor = unlimited(spec.factor) if spec.reduce_op == "premul_sum" else 1
    columns = zip(*rows, strict=True)
    totals = [
        reduce(combine, [scaled(unlimited(number), factor) for number in column])
        for column in columns
    ]
    if spec.reduce_op == "avg":
        totals = [total / len(rows) for total in totals]
    return totals


def scaled(number: Any, factor: Any) -> Any:
    return number if factor == 1 else number * factor


def unlimited(number: Any) -> Any:
    """A number that neither rounds nor overflows."""
    return Fraction(number) if isinstance(number, float) else number
