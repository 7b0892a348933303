"""An op explained: its words, and what every rank would hold, computed without torch or ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distdemo.model import Holding, Number, OpSpec, Piece
from distdemo.ops.contract import Op, Source, Undefined
from distdemo.ops.reduction import REDUCTIONS, reduce_numbers
from distdemo.ops.values import element, plan
from distdemo.reports import Explanation

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 4  # elements of a tensor that an explanation needs
RANKS = 8  # ranks that a picture holds


def explain(op: Op, spec: OpSpec) -> Explanation:
    """The explanation of this op with this spec's ranks, root, reduce op and traffic.

    The picture shows at most ``RANKS`` ranks and ``SHOWN`` elements of each tensor.
    """
    small = _small(spec)
    ranks = range(small.world_size)
    edges = {
        (source, rank)
        for rank in ranks
        for piece in _pieces(op.result(rank, small))
        for source in piece.ranks
        if source != rank
    }
    called = op.words.call.replace("{OP}", (spec.reduce_op or "sum").upper())
    return Explanation(
        spec=spec,
        words=replace(op.words, call=called),
        before=tuple(_before(op, rank, small) for rank in ranks),
        after=tuple(_after(op, rank, small) for rank in ranks),
        edges=frozenset(edges),
        traffic=op.traffic(spec),
        notes=op.notes(spec),
    )


def _small(spec: OpSpec) -> OpSpec:
    """The same with so few ranks and elements that it can be drawn; the root stays in it."""
    size = min(spec.world_size, RANKS)
    named = max(spec.root or 0, spec.src or 0, spec.dst or 0)
    if named >= size:
        size = min(spec.world_size, named + 1)
    rows = None if spec.values is None else tuple(_cut(row) for row in spec.values[:size])
    return replace(spec, world_size=size, shape=(min(spec.numel, SHOWN),), values=rows)


def _cut(row: Sequence[Number] | None) -> tuple[Number, ...] | None:
    return None if row is None else tuple(row[:SHOWN])


def _pieces(result: tuple[Source, ...] | Undefined) -> tuple[Source, ...]:
    return () if isinstance(result, Undefined) else result


def _before(op: Op, rank: int, spec: OpSpec) -> Holding:
    pieces = [_numbers(op.label(rank, piece, spec), spec) for piece in range(op.pieces(rank, spec))]
    return Holding(
        tuple(Piece(spec.shape, numbers, source=rank) for numbers in pieces), listed=op.list_before
    )


def _after(op: Op, rank: int, spec: OpSpec) -> Holding:
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return Holding(undefined=True)
    pieces = tuple(
        Piece(
            spec.shape,
            _evaluate(op, source, spec),
            source=None if source.reduced else source.ranks[0],
        )
        for source in result
    )
    return Holding(pieces, listed=op.list_after)


def _evaluate(op: Op, source: Source, spec: OpSpec) -> tuple[Number, ...]:
    parts = [_numbers(op.label(rank, source.piece, spec), spec) for rank in source.ranks]
    if not source.reduced:
        return parts[0]
    name = REDUCTIONS[spec.reduce_op or "sum"].name
    return tuple(reduce_numbers(name, list(column)) for column in zip(*parts, strict=True))


def _numbers(label: int, spec: OpSpec) -> tuple[Number, ...]:
    if spec.values is not None:
        return spec.values[label] or (0,) * spec.numel
    if spec.fill is not None:
        return (label if isinstance(spec.fill, str) else spec.fill,) * spec.numel
    rule = plan(spec)
    return tuple(element(rule, label, position) for position in range(spec.numel))
