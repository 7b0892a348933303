"""Explain an op: its text, and the ranks' data before and after, computed without torch."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

from distdemo.demo.records import Explanation, Held, Holding, ObjectPiece, Piece
from distdemo.ops.contract import Op, Slice, Source, Undefined
from distdemo.ops.reduction import reduce_numbers, wrapped
from distdemo.ops.spec import Number, OpSpec, object_of, pickled_size
from distdemo.ops.values import ValueRule, element, value_rule

WHOLE = 16  # largest number of elements that is shown whole
ENDS = 4  # elements shown from either end of a larger tensor
RANKS = 8  # ranks shown in a picture
UNPICKLING = (
    "Receiving objects from untrusted peers. Objects are sent as pickles, and unpickling runs "
    "code: anyone who can send to the group can run code on all its ranks."
)


def explain_op(op: Op, spec: OpSpec) -> Explanation:
    """Return the explanation of this op for a spec.

    The picture shows the first ranks, the root, src and dst, and the ends of large tensors. The
    values are computed over all ranks.
    """
    named = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    ranks = sorted(named | set(range(min(spec.group_size, RANKS))))
    form = op.form(spec)
    call = op.doc.call if form == op.all_forms[0] else f"dist.{form.call}"
    doc = replace(
        op.doc,
        call=call.replace("{OP}", (spec.reduce_op or "sum").upper()),
        summary=form.summary or op.doc.summary,
        mistake=UNPICKLING if spec.objects else op.doc.mistake,
    )
    rule = value_rule(op, spec)
    drawn = []
    moves = set[tuple[int, int]]()
    for rank in ranks:
        member = spec.member(rank)
        cuts = op.cuts_before(rank, spec)
        pieces = [_piece(spec, cut, _numbers(spec, rule, cut), member) for cut in cuts]
        before = Holding(tuple(pieces), joined=op.list_before and spec.is_joined)
        after = Holding(undefined=True)
        senders = set(ranks if op.is_barrier else ())
        result = op.result(rank, spec)
        if not isinstance(result, Undefined):
            pieces = [_evaluated(op, spec, rule, source) for source in result]
            after = Holding(tuple(pieces), joined=op.list_after and spec.is_joined)
            senders.update(*(source.ranks for source in result))
        senders &= {*ranks} - {rank}
        moves |= {(spec.member(sender), member) for sender in senders}
        drawn.append(Held(member, before, after))
    return Explanation(
        op=op.call(spec),
        spec=spec,
        words=doc,
        traffic=op.traffic(spec),
        ranks=tuple(drawn),
        moves=tuple(sorted(moves)),
        is_barrier=op.is_barrier,
        names=tuple(form.names for form in op.all_forms if form.since),
    )


def example_code(op: Op) -> str:
    """Return the op's program in ``examples``, which a wheel has within the package."""
    package = Path(__file__).parents[1]
    installed = package / "examples"
    folder = installed if installed.exists() else package.parent / "examples"
    return (folder / "ops" / f"{op.name}.py").read_text(encoding="utf-8")


def _evaluated(op: Op, spec: OpSpec, rule: ValueRule, source: Source) -> Piece | ObjectPiece:
    """Return one piece of a result."""
    cuts = [op.cut(rank, source.piece, spec) for rank in source.ranks]
    parts = [_numbers(spec, rule, cut) for cut in cuts]
    if not source.reduced:
        return _piece(spec, cuts[0], parts[0], spec.member(source.ranks[0]))
    reduced = [
        reduce_numbers(spec.reduce_op or "sum", list(numbers), spec.factor)
        for numbers in zip(*parts, strict=True)
    ]
    return _piece(spec, cuts[0], tuple(reduced), None)


def _piece(
    spec: OpSpec, cut: Slice, numbers: tuple[Number, ...], source: int | None
) -> Piece | ObjectPiece:
    if spec.objects:
        value = object_of(cut.label, spec)
        return ObjectPiece(value, pickled_size(value), source)
    kept = tuple(wrapped(number, spec.dtype) for number in numbers)
    if cut.numel <= WHOLE:
        return Piece(cut.shape, kept, source=source)
    return Piece(cut.shape, kept[:ENDS], kept[ENDS:], source)


def _numbers(spec: OpSpec, rule: ValueRule, cut: Slice) -> tuple[Number, ...]:
    """Return the elements of this piece, or the first and the last ones."""
    end = cut.start + cut.numel
    ends = (range(cut.start, cut.start + ENDS), range(end - ENDS, end))
    positions = [*chain(*ends)] if cut.numel > WHOLE else [*range(cut.start, end)]
    if spec.values is not None:
        row = spec.values[cut.label]
        return (0,) * len(positions) if row is None else tuple(row[at] for at in positions)
    label = spec.member(cut.label)
    return tuple(element(rule, label, position) for position in positions)
