"""An op explained: its words, and what every rank would hold, computed without torch or ranks."""

from __future__ import annotations

from dataclasses import replace

from distdemo.model import Holding, Number, OpSpec, Piece
from distdemo.ops.contract import Op, Source, Undefined
from distdemo.ops.reduction import REDUCTIONS, reduce_numbers, wrapped
from distdemo.ops.values import element, plan
from distdemo.reports import Explanation

SHOWN = 4  # elements of a tensor that an explanation needs
RANKS = 8  # ranks that a picture holds


def explain(op: Op, spec: OpSpec) -> Explanation:
    """The explanation of this op with this spec's ranks, root, reduce op and traffic.

    The picture shows the first ranks and those that the spec names, and the first elements of
    each tensor; their values are those of the whole world.
    """
    ranks = _shown(spec)
    short = _Short(op, spec)
    edges = {
        (source, rank)
        for rank in ranks
        for piece in _pieces(op.result(rank, spec))
        for source in piece.ranks
        if source != rank and source in ranks
    }
    called = op.words.call.replace("{OP}", (spec.reduce_op or "sum").upper())
    return Explanation(
        spec=spec,
        words=replace(op.words, call=called),
        ranks=ranks,
        before=tuple(short.before(rank) for rank in ranks),
        after=tuple(short.after(rank) for rank in ranks),
        edges=frozenset(edges),
        traffic=op.traffic(spec),
        notes=op.notes(spec),
    )


def _shown(spec: OpSpec) -> tuple[int, ...]:
    named = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    return tuple(sorted(named | set(range(min(spec.world_size, RANKS)))))


def _pieces(result: tuple[Source, ...] | Undefined) -> tuple[Source, ...]:
    return () if isinstance(result, Undefined) else result


class _Short:
    """What ranks hold, cut to the first elements; in Python's numbers, without torch."""

    def __init__(self, op: Op, spec: OpSpec) -> None:
        self._op = op
        self._spec = spec
        self._plan = plan(spec, len(op.value_labels(spec)))
        self._length = min(spec.numel, SHOWN)

    def before(self, rank: int) -> Holding:
        """What this rank holds before."""
        op, spec = self._op, self._spec
        labels = [op.label(rank, piece, spec) for piece in range(op.pieces(rank, spec))]
        pieces = tuple(self._piece(self._numbers(label), rank) for label in labels)
        return Holding(pieces, listed=op.list_before)

    def after(self, rank: int) -> Holding:
        """What this rank holds afterwards."""
        result = self._op.result(rank, self._spec)
        if isinstance(result, Undefined):
            return Holding(undefined=True)
        pieces = tuple(
            self._piece(self._evaluate(source), None if source.reduced else source.ranks[0])
            for source in result
        )
        return Holding(pieces, listed=self._op.list_after)

    def _piece(self, numbers: tuple[Number, ...], source: int | None) -> Piece:
        return Piece((self._length,), numbers, source=source)

    def _evaluate(self, source: Source) -> tuple[Number, ...]:
        op, spec = self._op, self._spec
        parts = [self._numbers(op.label(rank, source.piece, spec)) for rank in source.ranks]
        if not source.reduced:
            return parts[0]
        name = REDUCTIONS[spec.reduce_op or "sum"].name
        columns = zip(*parts, strict=True)
        return tuple(wrapped(reduce_numbers(name, list(each)), spec.dtype) for each in columns)

    def _numbers(self, label: int) -> tuple[Number, ...]:
        spec, length = self._spec, self._length
        if spec.values is not None:
            return tuple(spec.values[label] or (0,) * length)[:length]
        if spec.fill is not None:
            return (label if isinstance(spec.fill, str) else spec.fill,) * length
        return tuple(element(self._plan, label, position) for position in range(length))
