"""What each op should do: one row per op, in plain Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec

PREMUL_FACTOR = 2
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


def firsts(held: Held) -> list[Any]:
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


def less_own(n: int) -> Fraction:
    """Return the share of the data that isn't a rank's own."""
    return Fraction(n - 1, n)


@dataclass(frozen=True)
class OpFacts:
    """What an op should do, independently of its own declarations.

    Attributes:
        result: What a rank should hold after it, from what all ranks held before; None: undefined.
        tensors: Tensors in S of nccl-tests, doc/PERFORMANCE.md: 0, 1, or ``n`` for one per rank.
        busbw: Ratio of busbw to algbw for n ranks, from the same table.
        formula: The ratio as text.
        both: True if torch's call works in place and out of place.
        traced: True if there are algorithms of it.
    """

    result: Callable[[int, Held, OpSpec], list[Any] | None]
    tensors: int | str = 1
    busbw: Callable[[int], Fraction] = lambda n: Fraction(1)
    formula: str = "1"
    both: bool = False
    traced: bool = True


N_PARTS: dict[str, Any] = {"tensors": "n", "busbw": less_own, "formula": "(n−1)/n"}
FACTS = {
    "broadcast": OpFacts(lambda rank, held, spec: [held[spec.root or 0][0]]),
    "reduce": OpFacts(
        lambda rank, held, spec: [folded(firsts(held), spec)] if rank == spec.root else None
    ),
    "all_reduce": OpFacts(
        lambda rank, held, spec: [folded(firsts(held), spec)],
        busbw=lambda n: 2 * less_own(n),
        formula="2(n−1)/n",
    ),
    "scatter": OpFacts(lambda rank, held, spec: [held[spec.root or 0][rank]], both=True, **N_PARTS),
    "gather": OpFacts(
        lambda rank, held, spec: firsts(held) if rank == spec.root else [], both=True, **N_PARTS
    ),
    "all_gather": OpFacts(lambda rank, held, spec: firsts(held), both=True, **N_PARTS),
    "reduce_scatter": OpFacts(
        lambda rank, held, spec: [folded([each[rank] for each in held], spec)], both=True, **N_PARTS
    ),
    "all_to_all": OpFacts(lambda rank, held, spec: [each[rank] for each in held], **N_PARTS),
    "barrier": OpFacts(lambda rank, held, spec: [], tensors=0, traced=False),
    "p2p": OpFacts(peer_to_peer, traced=False),
}
"""One row per op: all that the tests know of it."""


def facts_of(op: str) -> OpFacts:
    """Return the row of an op."""
    assert op in FACTS, f"tests/plain.py: FACTS needs a row for {op}"
    return FACTS[op]


def folded(rows: list[list[Any]], spec: OpSpec) -> list[Any]:
    """The rows reduced, without rounding and without limits."""
    combine = FOLDS[spec.reduce_op or "sum"]
    factor = PREMUL_FACTOR if spec.reduce_op == "premul_sum" else 1
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
