"""Build the report of a traced run, and the list of costs.

Contributions follow from the schedule, which is played without processes; numbers are those that
the ranks really held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Generic, TypeVar

from distdemo import backends, ops
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import Returned, WorldReport
from distdemo.ops.spec import OpSpec
from distdemo.schedules.contract import Algorithm
from distdemo.schedules.schedule import (
    Exchange,
    Schedule,
    ScheduleError,
    Transfer,
    by_formula,
    count,
)
from distdemo.trace.records import (
    AlgorithmCost,
    AlgorithmInfo,
    AlgorithmList,
    HeldChunk,
    Numbers,
    PlayedRound,
    RankTrace,
    TraceReport,
)
from distdemo.versions import versions

V = TypeVar("V")
Contributions = tuple[int, ...]
"""Ranks that contributed to a chunk, sorted, each repeated once per contribution."""


# ----------------------------------------------------------------------- playing without processes


class Holdings(Generic[V]):
    """Contents of every rank's chunks.

    A chunk's content is anything that can be combined: numbers, or the ranks that contributed.

    Args:
        schedule: Schedule to play.
        start: Each rank's initial contents, by chunk.
        combine: Function that combines the held and the received content.

    Attributes:
        held: Each rank's current contents, by chunk.
    """

    def __init__(
        self, schedule: Schedule, start: Sequence[dict[int, V]], combine: Callable[[V, V], V]
    ) -> None:
        self._moved = schedule.goal.moved
        self._combine = combine
        self._start = tuple(dict(contents) for contents in start)
        self._last: list[dict[int, V]] = [{} for _ in start]
        self.held = tuple(dict(contents) for contents in start)

    def play(self, exchange: Exchange) -> None:
        """Play one round: all messages are sent before any arrives.

        Raises:
            ScheduleError: A rank sends a chunk that it doesn't hold.
        """
        messages = [(t, self._message(exchange.number, t)) for t in exchange.transfers]
        if self._moved:
            for transfer in exchange.transfers:
                for chunk in transfer.chunks:
                    self.held[transfer.src].pop(chunk, None)
        for transfer, message in messages:
            contents = self.held[transfer.dst]
            for chunk, content in message.items():
                combined = transfer.reduce and chunk in contents
                contents[chunk] = self._combine(contents[chunk], content) if combined else content
            self._last[transfer.dst] = message

    def _message(self, number: int, transfer: Transfer) -> dict[int, V]:
        sources = {"held": self.held, "original": self._start, "last": self._last}
        source = sources[transfer.content][transfer.src]
        for chunk in transfer.chunks:
            if chunk not in source:
                raise ScheduleError(
                    f"In round {number} rank {transfer.src} sends chunk {chunk}, "
                    "which it doesn't hold."
                )
        return {chunk: source[chunk] for chunk in transfer.chunks}


def contributions(schedule: Schedule) -> Holdings[Contributions]:
    """Return the holdings before the first round, with contributions as contents."""
    start: list[dict[int, Contributions]] = [
        dict.fromkeys(schedule.given(rank), (rank,)) for rank in range(schedule.n)
    ]
    return Holdings(schedule, start, lambda held, received: tuple(sorted(held + received)))


# -------------------------------------------------------------------------------------- the report


def make_report(spec: OpSpec, algorithm: Algorithm, world: WorldReport) -> TraceReport:
    """Return the report that all views display.

    The report of a failed world has no start and no rounds, because its ranks' state is unknown.

    Args:
        spec: Op of every rank.
        algorithm: Algorithm that ran.
        world: Outcome of the world.
    """
    schedule = Schedule.of(algorithm, spec.group_size, spec.numel, spec.root or 0)
    op = ops.REGISTRY[spec.op]
    traffic = op.traffic(spec)
    counts, _, _ = count(schedule, DTYPES[spec.dtype].itemsize)
    traces = [outcome.value for outcome in world.outcomes if isinstance(outcome, Returned)]
    chunks = range(schedule.sizes.chunks)
    report = TraceReport(
        op=op.call(spec),
        algorithm=info(algorithm),
        traffic=traffic,
        chunk_elements=tuple(map(schedule.sizes.of, chunks)),
        chunk_names=tuple(map(schedule.name, chunks)),
        wanted=tuple(tuple(schedule.due(rank)) for rank in range(schedule.n)),
        start=(),
        rounds=(),
        counts=counts,
        by_formula=by_formula(schedule, traffic.payload_bytes),
        verifications=tuple(trace.verification for trace in traces),
        world=world,
        versions=versions() | backends.versions_of(world.world),
    )
    if not world.ok:
        return report
    start, rounds = _rounds(schedule, traces)
    return replace(report, start=start, rounds=rounds)


def _rounds(
    schedule: Schedule, traces: Sequence[RankTrace]
) -> tuple[tuple[tuple[HeldChunk, ...], ...], tuple[PlayedRound, ...]]:
    """Return the state at the start, and the rounds with their changes."""
    holdings = contributions(schedule)

    def cell(rank: int, chunk: int, values: dict[int, Numbers]) -> HeldChunk:
        ranks = holdings.held[rank][chunk]
        return HeldChunk(chunk, ranks, values.get(chunk, ()), ranks == schedule.complete(chunk))

    start = tuple(
        tuple(cell(rank, chunk, trace.start) for chunk in schedule.given(rank))
        for rank, trace in enumerate(traces)
    )
    rounds = []
    for exchange in schedule.exchanges():
        holdings.play(exchange)
        sent: list[set[int]] = [set() for _ in traces]
        for transfer in exchange.transfers:
            sent[transfer.src].update(transfer.chunks)
        arrived = [trace.values[exchange.number - 1] for trace in traces]
        cells = tuple(
            tuple(cell(rank, chunk, values) for chunk in values)
            for rank, values in enumerate(arrived)
        )
        gone = tuple(
            tuple(sorted(chunks - held.keys()))
            for chunks, held in zip(sent, holdings.held, strict=True)
        )
        rounds.append(PlayedRound(exchange.number, exchange.phase, exchange.transfers, cells, gone))
    return start, tuple(rounds)


def info(algorithm: Algorithm) -> AlgorithmInfo:
    """Return the description of an algorithm."""
    names = ("rounds", "sent", "busiest", "total")
    texts = {name: getattr(algorithm.formulas, name).text for name in names}
    return AlgorithmInfo(algorithm.op, algorithm.name, algorithm.summary, algorithm.source, texts)


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
    return AlgorithmList(tuple(map(info, algorithms)), n, tuple(rows))
