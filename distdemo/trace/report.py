"""The report of a traced run: the picture, the counts beside their formulas, and what is wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from distdemo import backends, ops
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import Returned, WorldReport
from distdemo.trace.algorithms.plan import Plan
from distdemo.trace.count import checks, count, misprints
from distdemo.trace.picture import Picture, picture
from distdemo.trace.plans import about, divides, plan_for
from distdemo.trace.tracing import RankTrace, TraceReport, TraceSpec, WrongChunk
from distdemo.trace.truth import untrue
from distdemo.versions import versions


def report(spec: TraceSpec, world: WorldReport) -> TraceReport:
    """Everything that the views of a real run are drawn from.

    Of a world that failed there is no picture: no start and no rounds, only what was counted.

    Args:
        spec: what every rank ran.
        world: how its ranks ended.
    """
    plan = plan_for(spec)
    traces = [outcome.value for outcome in world.outcomes if isinstance(outcome, Returned)]
    found = replace(
        _counted(spec, plan),
        verifications=tuple(each.verification for each in traces),
        world=world,
        versions=versions() | backends.versions_of(world.world),
    )
    return _shown(found, plan, traces, world) if world.ok else found


def _shown(
    found: TraceReport, plan: Plan, traces: Sequence[RankTrace], world: WorldReport
) -> TraceReport:
    """With the picture, and all that it tells."""
    spec = found.spec
    seen = picture(spec, plan, traces, world.hosts)
    strange = tuple(untrue(spec.op, plan, [each.step for each in seen.rounds], traces))
    wrong = _with(tuple(_wrong(plan, seen, traces)), strange)
    more = _on_harmless(spec, seen, wrong), _on_clocks(world), _on_strange(strange)
    return replace(
        found,
        start=seen.start,
        rounds=seen.rounds,
        handed=tuple(each.sent for each in traces),
        wrong=wrong,
        notes=(*_notes(spec), *chain(*more)),
    )


def on_paper(spec: TraceSpec) -> TraceReport:
    """The same without any rank: whose contributions are where, without numbers and moments."""
    plan = plan_for(spec)
    seen = picture(spec, plan, ())
    wrong = _with(tuple(_wrong(plan, seen, ())), ())
    return replace(
        _counted(spec, plan),
        start=seen.start,
        rounds=seen.rounds,
        wrong=wrong,
        notes=(*_notes(spec), *_on_harmless(spec, seen, wrong)),
        versions=versions(),
    )


# ------------------------------------------------------------------------------------- the parts


def _counted(spec: TraceSpec, plan: Plan) -> TraceReport:
    """What needs no run, and no picture."""
    op, sizes, chosen = spec.op, plan.sizes, plan.algorithm
    traffic = ops.REGISTRY[op.op].traffic(op)
    counts = count(plan, DTYPES[op.dtype].itemsize)
    return TraceReport(
        spec=spec,
        about=about(chosen),
        traffic=traffic,
        chunk_elements=tuple(sizes.within(each, each + 1) for each in range(sizes.chunks)),
        chunk_names=tuple(map(plan.name, range(sizes.chunks))),
        wanted=tuple(tuple(plan.due(rank)) for rank in range(plan.n)),
        start=(),
        rounds=(),
        counts=counts,
        checks=checks(plan, counts, traffic.payload_bytes),
        misprints=misprints(chosen, plan.n, sizes.chunks, traffic.payload_bytes),
    )


def _wrong(plan: Plan, seen: Picture, traces: Sequence[RankTrace]) -> Iterator[WrongChunk]:
    """Each chunk that is not what it should be, with whose contributions it lacks or has too many.

    By its numbers, or, though those happen to be right, by what is in it.
    """
    found = {(each.rank, each.chunk): each for trace in traces for each in trace.wrong}
    for rank in range(plan.n):
        for chunk in plan.due(rank):
            held = seen.held[rank].get(chunk, ())
            right = plan.complete(chunk)
            by_numbers = found.get((rank, chunk))
            if by_numbers is None and (held == right or not plan.sizes.within(chunk, chunk + 1)):
                continue
            times, needed = Counter(held), set(right)
            yield replace(
                by_numbers or _by_contributions(rank, chunk, traces),
                missing=tuple(each for each in right if each not in times),
                extra=tuple(each for each in times if times[each] > 1 or each not in needed),
                round=seen.since.get((rank, chunk)),
            )


def _by_contributions(rank: int, chunk: int, traces: Sequence[RankTrace]) -> WrongChunk:
    """On paper there are no numbers; of a run these are what they should be, by chance."""
    if not traces:
        return WrongChunk(rank, chunk, None, None, None)
    trace = traces[rank]
    noted = [values[chunk] for values in (trace.start, *trace.values) if chunk in values]
    number = noted[-1][0] if noted and noted[-1] else None
    return WrongChunk(rank, chunk, 0, number, number)


def _with(wrong: Sequence[WrongChunk], strange: Sequence[WrongChunk]) -> tuple[WrongChunk, ...]:
    """All of them, those of one place once, in the order in which they came to be."""
    since = {(each.rank, each.chunk): each.round for each in strange}
    known = {(each.rank, each.chunk) for each in wrong}
    told = [
        each if each.round is not None else replace(each, round=since.get((each.rank, each.chunk)))
        for each in wrong
    ]
    told += [each for each in strange if (each.rank, each.chunk) not in known]
    return tuple(sorted(told, key=_age))


def _age(wrong: WrongChunk) -> tuple[float, int, int]:
    """Where the fault began comes first."""
    return (math.inf if wrong.round is None else wrong.round, wrong.rank, wrong.chunk)


def _notes(spec: TraceSpec) -> tuple[str, ...]:
    """What is done to the numbers outside the rounds."""
    op = spec.op
    if op.reduce_op == "premul_sum":
        return (f"Before the first round every rank multiplies what it holds by {op.factor:g}.",)
    if divides(op):
        return (f"After the last round every rank divides its result by {op.group_size}.",)
    return ()


def _on_harmless(spec: TraceSpec, seen: Picture, wrong: Sequence[WrongChunk]) -> tuple[str, ...]:
    """A fault that the result does not suffer from, or that its numbers do not show."""
    if spec.fault is None:
        return ()
    if not wrong:
        ranks = ", ".join(str(rank) for rank in sorted({rank for rank, _ in seen.since}))
        between = f" What differs in between is on ranks {ranks}." if ranks else ""
        return (f"This fault does no harm: every rank gets all that it has to.{between}",)
    if any(each.element is not None and each.got == each.expected for each in wrong):
        return ("Some numbers are right by chance: what is in the chunks is wrong all the same.",)
    return ()


def _on_clocks(world: WorldReport) -> tuple[str, ...]:
    if len(set(world.hosts)) > 1:
        return ("Moments are counted on each host from its own first one.",)
    return ()


def _on_strange(strange: Sequence[WrongChunk]) -> tuple[str, ...]:
    """Ranks held what the schedule does not say: the picture would not be of this run."""
    return tuple(
        f"Rank {each.rank} held {each.got} in chunk {each.chunk} after round {each.round}, where "
        f"this schedule makes {each.expected}: the fault is the backend's or this program's."
        for each in strange[:1]
    )
