"""Build the report of a traced run: state after each round, counts, formulas and wrong chunks.

Contributions follow from the schedule; numbers are those that the ranks really held.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from distdemo import backends, ops
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import Returned, WorldReport
from distdemo.ops.spec import Number
from distdemo.trace import algorithms
from distdemo.trace.count import checks, count, info
from distdemo.trace.play import Contributions, contributions, played
from distdemo.trace.records import (
    Cell,
    Moment,
    PlayedRound,
    RankTrace,
    TraceReport,
    TraceSpec,
    WrongChunk,
)
from distdemo.trace.schedule import Schedule
from distdemo.versions import versions

RankChunk = tuple[int, int]
"""A rank and a chunk."""


def make_report(spec: TraceSpec, world: WorldReport | None = None) -> TraceReport:
    """Return the report that all views display.

    The report of a failed world has no start and no rounds, because its ranks' state is unknown.

    Args:
        spec: Run of every rank.
        world: Outcome of the world. None for a report on paper, with contributions but without
            numbers and times.
    """
    op, schedule = spec.op, algorithms.schedule(spec.op, spec.algorithm, spec.chunks)
    traffic = ops.REGISTRY[op.op].traffic(op)
    itemsize = DTYPES[op.dtype].itemsize
    counts, sent, received = count(schedule, itemsize)
    outcomes = () if world is None else world.outcomes
    traces = [each.value for each in outcomes if isinstance(each, Returned)]
    found = TraceReport(
        spec=spec,
        algorithm=info(schedule.algorithm),
        traffic=traffic,
        element_bytes=itemsize,
        chunk_elements=tuple(map(schedule.sizes.of, range(schedule.sizes.chunks))),
        chunk_names=tuple(map(schedule.name, range(schedule.sizes.chunks))),
        wanted=tuple(tuple(schedule.due(rank)) for rank in range(schedule.n)),
        start=(),
        rounds=(),
        counts=counts,
        sent_bytes=sent,
        received_bytes=received,
        checks=checks(schedule, counts, traffic.payload_bytes),
        verifications=tuple(each.verification for each in traces),
        world=world,
        versions=versions() | ({} if world is None else backends.versions_of(world.world)),
    )
    if world is not None and not world.ok:
        return found
    start, rounds, held = _rounds(spec, schedule, traces, () if world is None else world.hosts)
    return replace(
        found,
        start=start,
        rounds=rounds,
        handed_bytes=tuple(each.sent_bytes for each in traces),
        wrong=tuple(sorted(_wrong(spec, schedule, held, traces), key=_age)),
    )


def _age(wrong: WrongChunk) -> tuple[float, int, int]:
    """Return a sort key that puts the earliest wrong chunk first."""
    return (math.inf if wrong.round is None else wrong.round, wrong.rank, wrong.chunk)


# ------------------------------------------------------------------------------------------ rounds


def _rounds(
    spec: TraceSpec, schedule: Schedule, traces: Sequence[RankTrace], hosts: Sequence[str]
) -> tuple[
    tuple[tuple[Cell, ...], ...], tuple[PlayedRound, ...], tuple[dict[int, Contributions], ...]
]:
    """Return the state at the start, the rounds with their changes, and the final contributions."""

    def cell(rank: int, chunk: int, ranks: Contributions, number: int) -> Cell:
        values: tuple[Number | str, ...] = ()
        if traces:
            trace = traces[rank]
            values = (trace.values[number - 1] if number else trace.start).get(chunk, ())
        return Cell(chunk, ranks, values, ranks == schedule.complete(chunk))

    held = contributions(schedule, forgiving=True).held
    start = tuple(
        tuple(cell(rank, chunk, ranks, 0) for chunk, ranks in sorted(here.items()))
        for rank, here in enumerate(held)
    )
    moments = on_one_clock(traces, hosts)
    found = []
    for step, now in played(schedule, spec.fault):
        held = now.held
        arrived: list[set[int]] = [set() for _ in held]
        gone: list[set[int]] = [set() for _ in held]
        for each in step.transfers:
            arrived[each.dst].update(each.chunks)
            gone[each.src].update(each.chunks)
        if spec.divides and step.number == len(moments):  # the division changes these chunks too
            for rank, chunks in enumerate(arrived):
                chunks.update(schedule.due(rank))
        cells = tuple(
            tuple(cell(rank, chunk, held[rank][chunk], step.number) for chunk in sorted(chunks))
            for rank, chunks in enumerate(arrived)
        )
        left = tuple(
            tuple(sorted(chunks - here.keys())) for chunks, here in zip(gone, held, strict=True)
        )
        times = moments[step.number - 1] if moments else ()
        found.append(replace(step, arrived=cells, gone=left, moments=times))
    return start, tuple(found), held


def on_one_clock(traces: Sequence[RankTrace], hosts: Sequence[str]) -> list[tuple[Moment, ...]]:
    """Return the times of each round, relative to the start of the first rank's first round.

    Args:
        traces: Traces, one per rank.
        hosts: Host of each rank. Clocks of hosts can't be compared, so each host has its own start.
    """
    homes = hosts or [""] * len(traces)
    first: dict[str, float] = {}
    for home, trace in zip(homes, traces, strict=True):
        for moment in trace.moments[:1]:
            first[home] = min(first.get(home, moment.began_s), moment.began_s)
    return [
        tuple(
            Moment(
                moment.began_s - first[home],
                moment.posted_s - first[home],
                moment.arrived_s - first[home],
                moment.ended_s - first[home],
            )
            for home, moment in zip(homes, moments, strict=True)
        )
        for moments in zip(*(trace.moments for trace in traces), strict=True)
    ]


# ------------------------------------------------------------------------------------ wrong chunks


def _wrong(
    spec: TraceSpec,
    schedule: Schedule,
    held: Sequence[dict[int, Contributions]],
    traces: Sequence[RankTrace],
) -> Iterator[WrongChunk]:
    """Yield each wrong chunk with its missing and extra contributions.

    A chunk is wrong if its numbers are, or if its contributions are and the numbers are right by
    chance.
    """
    by_numbers = {(each.rank, each.chunk): each for trace in traces for each in trace.wrong}
    since = {} if spec.fault is None else _since(spec, schedule)
    for rank, chunk in [
        (each, chunk) for each in range(schedule.n) for chunk in schedule.due(each)
    ]:
        actual, right = held[rank].get(chunk, ()), schedule.complete(chunk)
        found = by_numbers.get((rank, chunk))
        if found is None and (actual == right or not schedule.sizes.of(chunk)):
            continue
        if found is None and not traces:  # on paper there are no numbers
            found = WrongChunk(rank, chunk, 0 if actual else None, None, None)
        elif found is None:  # its numbers are right by chance
            recorded = (traces[rank].start, *traces[rank].values)
            number = next(values[chunk][0] for values in reversed(recorded) if chunk in values)
            found = WrongChunk(rank, chunk, 0, number, number)
        times = Counter(actual)
        yield replace(
            found,
            missing=tuple(each for each in right if each not in times),
            extra=tuple(each for each in times if times[each] > 1 or each not in right),
            round=since.get((rank, chunk)),
        )


def _since(spec: TraceSpec, schedule: Schedule) -> dict[RankChunk, int]:
    """Return the round after which each rank's chunk first differed from the correct schedule."""
    found: dict[RankChunk, int] = {}
    for (right, wanted), (wrong, got) in zip(
        played(schedule), played(schedule, spec.fault), strict=True
    ):
        for each in (*right.transfers, *wrong.transfers):
            for rank in (each.src, each.dst):
                for chunk in each.chunks:
                    if wanted.held[rank].get(chunk) != got.held[rank].get(chunk):
                        found.setdefault((rank, chunk), right.number)
    return found
