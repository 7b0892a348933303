"""An op explained: its words, and what every rank would hold, computed without torch or ranks."""

from __future__ import annotations

from dataclasses import replace

from distdemo.demo.holdings import Holding, Piece, Thing
from distdemo.demo.reports import Explanation
from distdemo.ops.contract import Cut, Op, Source, Undefined, Words
from distdemo.ops.reduction import REDUCTIONS, reduce_numbers, wrapped
from distdemo.ops.spec import Number, OpSpec
from distdemo.ops.values import element, object_of, pickled_size, plan_for

SHOWN = 4  # elements of a tensor that an explanation needs
RANKS = 8  # ranks that a picture holds
UNPICKLING = (
    "Taking objects from peers that you don't trust. They travel as pickles, and unpickling runs "
    "code: whoever can send to the group can run code on every rank of it."
)


def explain(op: Op, spec: OpSpec) -> Explanation:
    """The explanation of this op with this spec's ranks, root, reduce op and traffic.

    The picture shows the first ranks and those that the spec names, and the first elements of
    each tensor; their values are those of the whole world.
    """
    ranks = _shown(spec)
    short = _Short(op, spec)
    edges = {
        (spec.member(source), spec.member(rank))
        for rank in ranks
        for piece in _pieces(op.result(rank, spec))
        for source in piece.ranks
        if source != rank and source in ranks
    }
    if op.meets:
        members = [spec.member(rank) for rank in ranks]
        edges = {(one, other) for one in members for other in members if one != other}
    return Explanation(
        spec=spec,
        words=_words(op, spec),
        ranks=tuple(spec.member(rank) for rank in ranks),
        before=tuple(short.before(rank) for rank in ranks),
        after=tuple(short.after(rank) for rank in ranks),
        edges=frozenset(edges),
        traffic=op.traffic(spec),
        notes=op.notes(spec),
        meets=op.meets,
    )


def _words(op: Op, spec: OpSpec) -> Words:
    """The op's words, for the form that the spec chooses."""
    form = op.form(spec)
    usual = form == op.all_forms[0]
    call = op.words.call if usual else f"dist.{form.calls}"
    called = call.replace("{OP}", (spec.reduce_op or "sum").upper())
    mistake = UNPICKLING if spec.objects else op.words.mistake
    return replace(op.words, call=called, summary=form.summary or op.words.summary, mistake=mistake)


def _shown(spec: OpSpec) -> tuple[int, ...]:
    named = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    return tuple(sorted(named | set(range(min(spec.group_size, RANKS)))))


def _pieces(result: tuple[Source, ...] | Undefined) -> tuple[Source, ...]:
    return () if isinstance(result, Undefined) else result


class _Short:
    """What ranks hold, cut to the first elements; in Python's numbers, without torch."""

    def __init__(self, op: Op, spec: OpSpec) -> None:
        self._op = op
        self._spec = spec
        self._plan = plan_for(op, spec)

    def before(self, rank: int) -> Holding:
        """What this rank holds before."""
        op, spec = self._op, self._spec
        cuts = [op.cut(rank, piece, spec) for piece in range(op.pieces(rank, spec))]
        own = spec.member(rank)
        pieces = tuple(self._piece(cut, self._numbers(cut), own) for cut in cuts)
        return self._holding(pieces, listed=op.list_before)

    def after(self, rank: int) -> Holding:
        """What this rank holds afterwards."""
        result = self._op.result(rank, self._spec)
        if isinstance(result, Undefined):
            return Holding(undefined=True)
        pieces = tuple(self._evaluate(source) for source in result)
        return self._holding(pieces, listed=self._op.is_listed(self._spec))

    def _holding(self, pieces: tuple[Piece | Thing, ...], *, listed: bool) -> Holding:
        joined = listed and self._spec.is_joined
        return Holding(pieces, listed=listed and not joined, joined=joined)

    def _piece(self, cut: Cut, numbers: tuple[Number, ...], source: int | None) -> Piece | Thing:
        if self._spec.objects:
            thing = object_of(cut.label, self._spec)
            return Thing(thing, pickled_size(thing), source)
        kept = tuple(wrapped(number, self._spec.dtype) for number in numbers)
        return Piece((len(kept),), kept, source=source)

    def _evaluate(self, source: Source) -> Piece | Thing:
        """One piece of a result."""
        op, spec = self._op, self._spec
        cuts = [op.cut(rank, source.piece, spec) for rank in source.ranks]
        parts = [self._numbers(cut) for cut in cuts]
        if not source.reduced:
            return self._piece(cuts[0], parts[0], spec.member(source.ranks[0]))
        name = REDUCTIONS[spec.reduce_op or "sum"].name
        columns = zip(*parts, strict=True)
        reduced = (reduce_numbers(name, list(each), spec.factor) for each in columns)
        return self._piece(cuts[0], tuple(reduced), None)

    def _numbers(self, cut: Cut) -> tuple[Number, ...]:
        spec, length = self._spec, min(cut.numel, SHOWN)
        positions = range(cut.start, cut.start + length)
        if spec.values is not None:
            row = spec.values[cut.label]
            return (0,) * length if row is None else tuple(row[at] for at in positions)
        label = spec.member(cut.label)
        if spec.fill is not None:
            return (label if isinstance(spec.fill, str) else spec.fill,) * length
        return tuple(element(self._plan, label, position) for position in positions)
