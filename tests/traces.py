"""Traces computed in plain Python from the schedules, for the tests of their views."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import Any

from distdemo import ops
from distdemo.demo.records import Verification
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import element, plan_for
from distdemo.trace.algorithms import of_op
from distdemo.trace.algorithms.plan import Plan, plan_of
from distdemo.trace.board import Board, Contributions, contributions
from distdemo.trace.count import checks, count, misprints
from distdemo.trace.faults import spoiled
from distdemo.trace.scheduling import About, Fault, Step
from distdemo.trace.tracing import Cell, Moment, Played, TraceReport, TraceSpec, WrongChunk

Values = tuple[float, ...]
FIRST = 8  # numbers of a chunk that are kept


def paper(
    op: str,
    algorithm: str,
    n: int,
    elements: int,
    root: int = 0,
    *,
    chunks: int | None = None,
    fault: Fault | None = None,
    real: bool = False,
    dtype: str = "float32",
) -> TraceReport:
    """The trace of a sum, or of what moves without one, of the op's default values.

    Args:
        op: torch's name of it.
        algorithm: its name.
        n: ranks.
        elements: of the tensor that is cut; of ops with pieces of their own, of one piece.
        root: where the op has one.
        chunks: of an algorithm that leaves it open.
        fault: what is done wrong.
        real: pretend that ranks ran it, a round a millisecond, the last rank always the slowest.
        dtype: torch's name.
    """
    found = next(each for each in of_op(op) if each.name == algorithm)
    plan = plan_of(found, n, elements, root, chunks)
    spec = _spec(op, plan, elements, dtype)
    traffic, itemsize = ops.REGISTRY[op].traffic(spec), DTYPES[dtype].itemsize
    counts = count(plan, itemsize)
    start, rounds = _played(plan, spec, fault, real=real)
    report = TraceReport(
        spec=TraceSpec(spec, algorithm, chunks, fault),
        about=about(plan),
        traffic=traffic,
        chunk_elements=tuple(plan.sizes.within(at, at + 1) for at in range(_total(plan))),
        chunk_names=tuple(map(plan.name, range(_total(plan)))),
        wanted=tuple(tuple(plan.due(rank)) for rank in range(n)),
        start=start,
        rounds=rounds,
        counts=counts,
        checks=checks(plan, counts, traffic.payload_bytes),
        misprints=misprints(found, n, plan.sizes.chunks, traffic.payload_bytes),
        versions={"distdemo": "1.2.3", "torch": "2.13.0"},
    )
    report = replace(report, wrong=_wrong(plan, report))
    return _as_if_run(report, itemsize, rounds) if real else report


def about(plan: Plan) -> About:
    """The algorithm, in words."""
    found, told = plan.algorithm, plan.algorithm.formulas
    named = tuple((name, getattr(told, name).words) for name in ("rounds", "sent", "busiest"))
    return About(found.name, found.summary, found.source, (*named, ("total", told.total.words)))


def _spec(op: str, plan: Plan, elements: int, dtype: str) -> OpSpec:
    takes = ops.REGISTRY[op].takes
    return OpSpec(
        op,
        plan.n,
        dtype=dtype,
        shape=(elements,),
        reduce_op="sum" if "reduce_op" in takes else None,
        root=plan.root if "root" in takes else None,
    )


def _total(plan: Plan) -> int:
    """Chunks; those of all_to_all are n for each rank."""
    return plan.n**2 if plan.task.given == "from" else plan.sizes.chunks


def _given(plan: Plan, spec: OpSpec, rank: int) -> dict[int, Values]:
    """What is in the chunks that a rank has before, by number."""
    op = ops.REGISTRY[spec.op]
    rule = plan_for(op, spec)
    found = {}
    for place, chunk in enumerate(plan.given(rank)):
        cut = op.cut(rank, 0 if plan.task.whole else place, spec)
        first = cut.start + (plan.sizes.before(chunk) if plan.task.whole else 0)
        length = plan.sizes.within(chunk, chunk + 1)
        found[chunk] = tuple(
            float(element(rule, cut.label, at)) for at in range(first, first + min(length, FIRST))
        )
    return found


def _played(
    plan: Plan, spec: OpSpec, fault: Fault | None, *, real: bool
) -> tuple[tuple[tuple[Cell, ...], ...], tuple[Played, ...]]:
    """What all hold at the start, and each round."""
    who: Board[Contributions] = contributions(plan, forgiving=fault is not None)
    what: Board[Values] = Board(
        plan, [_given(plan, spec, rank) for rank in range(plan.n)], _sum, absent=()
    )
    now = _cells(plan, who, what)
    start, rounds = tuple(tuple(each.values()) for each in now), []
    for step in spoiled(plan, fault) if fault else plan.steps():
        who.play(step)
        what.play(step)
        after = _cells(plan, who, what)
        rounds.append(_change(step, now, after, real=real))
        now = after
    return start, tuple(rounds)


def _sum(held: Values, came: Values) -> Values:
    return tuple(one + other for one, other in zip_longest(held, came, fillvalue=0.0))


Held = list[dict[int, Cell]]


def _cells(plan: Plan, who: Board[Contributions], what: Board[Values]) -> Held:
    return [
        {
            chunk: Cell(
                chunk,
                ranks,
                what.held[rank][chunk],
                complete=ranks == plan.complete(chunk),
                wanted=chunk in plan.due(rank),
            )
            for chunk, ranks in sorted(held.items())
        }
        for rank, held in enumerate(who.held)
    ]


def _change(step: Step, before: Held, after: Held, *, real: bool) -> Played:
    """A round, with what came by messages and what went."""
    came: list[set[int]] = [set() for _ in before]
    for each in step.transfers:
        came[each.dst].update(each.chunks)
    arrived = tuple(
        tuple(held[chunk] for chunk in sorted(chunks))
        for chunks, held in zip(came, after, strict=True)
    )
    gone = tuple(tuple(sorted(set(old) - set(new))) for old, new in zip(before, after, strict=True))
    busy = {rank for each in step.transfers for rank in (each.src, each.dst)}
    moments = tuple(_moment(step.number, rank, rank in busy) for rank in range(len(before)))
    return Played(step, arrived, gone, moments if real else ())


def _moment(number: int, rank: int, busy: bool) -> Moment:
    """Of a clock that nobody read."""
    began = (number - 1) * 1e-3
    return Moment(began, began + (0.5e-3 + rank * 1e-5 if busy else 0.0))


# ---------------------------------------------------------------------------- what came of it


def _wrong(plan: Plan, report: TraceReport) -> tuple[WrongChunk, ...]:
    """Chunks that are not what they should be, by whose contributions are in them."""
    if report.spec.fault is None:
        return ()
    right = paper(
        report.spec.op.op,
        report.spec.algorithm,
        plan.n,
        report.spec.op.numel,
        plan.root,
        chunks=report.spec.chunks,
    )
    got, should = list(report.states()), list(right.states())
    found = []
    for rank, wanted in enumerate(report.wanted):
        for chunk in wanted:
            mine, expected = got[-1][rank].get(chunk), should[-1][rank][chunk]
            if mine is not None and (mine.ranks, mine.values) == (expected.ranks, expected.values):
                continue
            first = next(at for at in range(len(got)) if _differ(got, should, at, rank, chunk))
            found.append(_wrong_chunk(rank, mine, expected, first))
    return tuple(found)


def _differ(got: list[Any], should: list[Any], at: int, rank: int, chunk: int) -> bool:
    """Whether this chunk of this rank is another one from this round to the end."""
    return all(
        got[later][rank].get(chunk) != should[later][rank].get(chunk)
        for later in range(at, len(got))
    )


def _wrong_chunk(rank: int, mine: Cell | None, expected: Cell, first: int) -> WrongChunk:
    ranks = mine.ranks if mine else ()
    place = None
    if mine and mine.values:
        pairs = zip(mine.values, expected.values, strict=True)
        place = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
    return WrongChunk(
        rank,
        expected.chunk,
        place,
        None if place is None or mine is None else mine.values[place],
        expected.values[place or 0] if expected.values else None,
        missing=tuple(each for each in expected.ranks if each not in ranks),
        extra=tuple(
            dict.fromkeys(r for r in ranks if r not in expected.ranks or ranks.count(r) > 1)
        ),
        round=first,
    )


def _as_if_run(report: TraceReport, itemsize: int, rounds: tuple[Played, ...]) -> TraceReport:
    """The same with a world, bytes that were handed over, and verifications."""
    n = report.spec.op.group_size
    handed = [0] * n
    for each in rounds:
        for transfer in each.step.transfers:
            handed[transfer.src] += transfer.elements * itemsize
    return replace(
        report,
        handed=tuple(handed),
        verifications=tuple(_verification(report, rank) for rank in range(n)),
        world=WorldReport(
            WorldSpec(n), tuple(Returned(rank=r) for r in range(n)), None, 0.25, "fork", "quick"
        ),
    )


def _verification(report: TraceReport, rank: int) -> Verification:
    wrong = sum(report.chunk_elements[each.chunk] for each in report.wrong if each.rank == rank)
    checked = sum(report.chunk_elements[chunk] for chunk in report.wanted[rank])
    return Verification(not wrong, checked, wrong)
