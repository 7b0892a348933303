"""Explain an op: its text, and the ranks' data before and after, computed without torch."""

from __future__ import annotations

from itertools import chain

from distdemo.demo.records import Explanation
from distdemo.ops.contract import Op, Slice, Source, Undefined
from distdemo.ops.reduction import reduce_numbers, wrapped
from distdemo.ops.spec import Number, OpSpec, object_of
from distdemo.ops.values import element, value_rule
from distdemo.view.held import UNDEFINED, Held, Holding, Piece

WHOLE = 16  # largest number of elements that is shown whole
ENDS = 4  # elements shown from either end of a larger tensor
RANKS = 8  # ranks shown in a picture


def explain_op(op: Op, spec: OpSpec) -> Explanation:
    """Return the explanation of this op for a spec.

    The picture shows the first ranks, the root, src and dst, and the ends of large tensors. The
    values are computed over all ranks.
    """
    named = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    ranks = sorted(named | set(range(min(spec.group_size, RANKS))))
    moves = set[tuple[int, int]]()
    for rank in ranks:
        senders = set(ranks if op.is_barrier else ())
        result = op.result(rank, spec)
        if not isinstance(result, Undefined):
            senders.update(*(source.ranks for source in result))
        moves |= {(spec.member(sender), spec.member(rank)) for sender in senders & {*ranks}}
    return Explanation(
        op=op.call(spec),
        spec=spec,
        words=op.words(spec),
        traffic=op.traffic(spec),
        ranks=tuple(data_of(op, spec, rank) for rank in ranks),
        moves=tuple(sorted(moves)),
        is_barrier=op.is_barrier,
        names=tuple(filter(None, [op.form(spec).names])),
    )


def data_of(op: Op, spec: OpSpec, rank: int) -> Held:
    """Return the data of a rank of the group before and after the op, large tensors shortened."""
    own = [Source((rank,), piece) for piece in range(op.pieces(rank, spec))]
    before = tuple(_piece(op, spec, source) for source in own)
    after = UNDEFINED
    result = op.result(rank, spec)
    if not isinstance(result, Undefined):
        pieces = tuple(_piece(op, spec, source) for source in result)
        after = Holding(pieces)
    return Held(spec.member(rank), Holding(before), after)


def _piece(op: Op, spec: OpSpec, source: Source) -> Piece:
    """Return the data of one source: a rank's piece, or the pieces of several ranks reduced."""
    cuts = [op.cut(rank, source.piece, spec) for rank in source.ranks]
    cut = cuts[0]
    origin = tuple(map(spec.member, source.ranks))
    if spec.objects:
        return Piece.of_object(object_of(cut.label, spec), origin)
    parts = [_numbers(op, spec, cut) for cut in cuts]
    numbers = parts[0]
    if source.reduced:
        reduce_op = spec.reduce_op or "sum"
        columns = zip(*parts, strict=True)
        numbers = [reduce_numbers(reduce_op, list(column)) for column in columns]
    kept = tuple(wrapped(number, spec.dtype) for number in numbers)
    if cut.numel <= WHOLE:
        return Piece(cut.shape, kept, sources=origin)
    return Piece(cut.shape, kept[:ENDS], kept[ENDS:], origin)


def _numbers(op: Op, spec: OpSpec, cut: Slice) -> list[Number]:
    """Return the elements of this piece, or the first and the last ones."""
    end = cut.start + cut.numel
    ends = (range(cut.start, cut.start + ENDS), range(end - ENDS, end))
    positions = [*chain(*ends)] if cut.numel > WHOLE else [*range(cut.start, end)]
    if spec.values is not None:
        row = spec.values[cut.label]
        return [0 if row is None else row[position] for position in positions]
    rule = value_rule(op, spec)
    return [element(rule, spec.member(cut.label), position) for position in positions]
