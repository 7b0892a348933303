"""Build the report of a traced run, and the list of costs.

Contributions follow from the schedule; numbers are those that the ranks really held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from distdemo import backends, ops, schedules
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import Returned, WorldReport
from distdemo.schedules.contract import Algorithm
from distdemo.schedules.count import (
    CostModel,
    by_formula,
    checks,
    costs,
    count,
    crossovers,
    info,
    infos,
)
from distdemo.schedules.schedule import Schedule
from distdemo.trace.play import Contributions, contributions
from distdemo.trace.records import (
    AlgorithmCost,
    AlgorithmList,
    HeldChunk,
    Moment,
    PlayedRound,
    RankTrace,
    TraceReport,
    TraceSpec,
)
from distdemo.versions import versions


def make_report(spec: TraceSpec, world: WorldReport) -> TraceReport:
    """Return the report that all views display.

    The report of a failed world has no start and no rounds, because its ranks' state is unknown.

    Args:
        spec: Run of every rank.
        world: Outcome of the world.
    """
    op, schedule = spec.op, schedules.schedule(spec.op, spec.algorithm, spec.chunks)
    collective, itemsize = ops.REGISTRY[op.op], DTYPES[op.dtype].itemsize
    traffic = collective.traffic(op)
    counts, sent, received = count(schedule, itemsize)
    traces = [outcome.value for outcome in world.outcomes if isinstance(outcome, Returned)]
    report = TraceReport(
        op=collective.call(op),
        algorithm=info(schedule.algorithm),
        traffic=traffic,
        spec=spec,
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
        verifications=tuple(trace.verification for trace in traces),
        world=world,
        versions=versions() | backends.versions_of(world.world),
    )
    if not world.ok:
        return report
    start, rounds = _rounds(spec, schedule, traces, world.hosts)
    report = replace(report, start=start, rounds=rounds)
    return replace(
        report,
        handed_bytes=tuple(trace.sent_bytes for trace in traces),
        wrong=tuple(wrong for trace in traces for wrong in trace.wrong),
    )


# ------------------------------------------------------------------------------------------ rounds


def _rounds(
    spec: TraceSpec, schedule: Schedule, traces: Sequence[RankTrace], hosts: Sequence[str]
) -> tuple[tuple[tuple[HeldChunk, ...], ...], tuple[PlayedRound, ...]]:
    """Return the state at the start, and the rounds with their changes."""

    def cell(rank: int, chunk: int, ranks: Contributions, number: int) -> HeldChunk:
        trace = traces[rank]
        values = trace.values[number - 1] if number else trace.start
        return HeldChunk(chunk, ranks, values.get(chunk, ()), ranks == schedule.complete(chunk))

    holdings = contributions(schedule)
    start = tuple(
        tuple(cell(rank, chunk, ranks, 0) for chunk, ranks in sorted(here.items()))
        for rank, here in enumerate(holdings.held)
    )
    moments = relative_moments(traces, hosts)
    rounds = []
    for exchange in schedule.exchanges():
        holdings.play(exchange)
        held = holdings.held
        arrived: list[set[int]] = [set() for _ in held]
        gone: list[set[int]] = [set() for _ in held]
        for transfer in exchange.transfers:
            arrived[transfer.dst].update(transfer.chunks)
            gone[transfer.src].update(transfer.chunks)
        is_last = exchange.number == len(moments)
        for rank, chunks in enumerate(arrived):
            if spec.divides and is_last:  # the division changes these chunks, too
                chunks.update(schedule.due(rank))
        cells = tuple(
            tuple(cell(rank, chunk, held[rank][chunk], exchange.number) for chunk in sorted(chunks))
            for rank, chunks in enumerate(arrived)
        )
        left = tuple(
            tuple(sorted(chunks - here.keys())) for chunks, here in zip(gone, held, strict=True)
        )
        rounds.append(
            PlayedRound(
                exchange.number,
                exchange.phase,
                exchange.transfers,
                cells,
                left,
                moments[exchange.number - 1],
            )
        )
    return start, tuple(rounds)


def relative_moments(traces: Sequence[RankTrace], hosts: Sequence[str]) -> list[tuple[Moment, ...]]:
    """Return the times of each round, relative to the start of the first rank's first round.

    Args:
        traces: Traces, one per rank.
        hosts: Host of each rank. Clocks of hosts can't be compared, so each host has its own start.
    """
    host_of_rank = hosts or [""] * len(traces)
    begins: dict[str, float] = {}
    for host, trace in zip(host_of_rank, traces, strict=True):
        for moment in trace.moments[:1]:
            begins[host] = min(begins.get(host, moment.began_s), moment.began_s)
    return [
        tuple(
            moment.since(begins[host]) for host, moment in zip(host_of_rank, moments, strict=True)
        )
        for moments in zip(*(trace.moments for trace in traces), strict=True)
    ]


# ------------------------------------------------------------------------------ costs by formula


def costs_on(n: int, algorithms: Sequence[Algorithm], sizes: Sequence[int]) -> AlgorithmList:
    """Return the costs of these algorithms on n ranks.

    Args:
        n: Number of ranks.
        algorithms: Algorithms, those of one op together.
        sizes: Sizes in bytes.
    """
    rows = [
        AlgorithmCost(op, algorithm.name, size, by_formula(Schedule.of(algorithm, n, 1), size))
        for op, members in groupby(algorithms, attrgetter("op"))
        for same_op in [tuple(members)]
        for size in sorted(set(sizes))
        for algorithm in same_op
    ]
    return AlgorithmList(infos(algorithms), n, tuple(rows))


def with_times(record: AlgorithmList, links: Mapping[str, CostModel]) -> AlgorithmList:
    """Return the costs with predicted times.

    Args:
        record: Costs on a number of ranks.
        links: α and β for each op.
    """
    changes = {}
    for op, link in links.items():
        lines = costs(op, record.world_size or 0)
        changes[op] = tuple(crossovers(lines, link.alpha_s, link.beta_s_per_byte))
    timed = []
    for row in record.costs:
        link = links[row.op]
        predicted_s = row.counts.alpha_rounds * link.alpha_s
        predicted_s += row.counts.beta_bytes * link.beta_s_per_byte
        timed.append(replace(row, predicted_s=predicted_s))
    return replace(record, costs=tuple(timed), links=dict(links), crossovers=changes)
