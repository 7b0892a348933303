"""Runs for view tests, with made-up times of one millisecond per round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from distdemo import ops, schedules
from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.ops.buffers import held_before
from distdemo.ops.spec import OpSpec, Verification
from distdemo.schedules.schedule import Schedule
from distdemo.trace.play import Holdings
from distdemo.trace.records import Moment, RankTrace, TraceReport, TraceSpec, WrongChunk
from distdemo.trace.report import make_report

VERSIONS = {"distdemo": "1.0", "torch": "2.0"}


def spec_of(
    op: str, n: int, elements: int, reduce_op: str = "sum", root: int = 0, **more: Any
) -> OpSpec:
    """Return a spec with the reduce op and the root, if the op takes them."""
    taken = {"reduce_op": reduce_op, "root": root}
    settings = {name: value for name, value in taken.items() if name in ops.REGISTRY[op].takes}
    return OpSpec(op, n, shape=(elements,), **settings | more)  # type: ignore[arg-type]


def chunks_before(schedule: Schedule, rank: int, spec: OpSpec) -> dict[int, Any]:
    """Return the numbers in the chunks that this rank holds before the first round."""
    factor = spec.factor if spec.reduce_op == "premul_sum" else 1
    held = held_before(ops.REGISTRY[spec.op], rank, spec)
    pieces = [factor * each.reshape(-1).numpy() for each in held]
    if schedule.goal.whole and pieces:
        ends = [schedule.sizes.before(chunk) for chunk in range(1, schedule.sizes.chunks)]
        pieces = np.split(pieces[0], ends)
    return dict(zip(schedule.given(rank), pieces, strict=False))


def real(
    op: str,
    name: str,
    n: int,
    elements: int,
    wrong_chunk: tuple[int, int] | None = None,
    **how: Any,
) -> TraceReport:
    """Return the report of a made-up run in which the last rank waits longest in every round.

    Chunks are the algorithm's default, or as many as ``chunks`` says.

    Args:
        op: Op to run.
        name: Name of the algorithm.
        n: Number of ranks.
        elements: Elements of one tensor or part.
        wrong_chunk: Rank and chunk whose result is 10 too small, or None.
        how: Further fields of the spec.
    """
    chunks = how.pop("chunks", None)
    spec = TraceSpec(spec_of(op, n, elements, **how), name, chunks)
    schedule = schedules.schedule(spec.op, name, chunks)
    start = [chunks_before(schedule, rank, spec.op) for rank in range(n)]
    holdings = Holdings(schedule, start, np.add)
    values: list[list[dict[int, Any]]] = [[] for _ in range(n)]
    moments: list[list[Moment]] = [[] for _ in range(n)]
    sent = [0] * n
    for exchange in schedule.exchanges():
        holdings.play(exchange)
        for each in exchange.transfers:
            sent[each.src] += 4 * each.elements
        for rank in range(n):
            arrived = {chunk for t in exchange.transfers if t.dst == rank for chunk in t.chunks}
            values[rank].append({c: _first(holdings.held[rank][c]) for c in sorted(arrived)})
            busy = any(t.elements and rank in (t.src, t.dst) for t in exchange.transfers)
            began, took = 1e-3 * (exchange.number - 1), 5e-4 * (1 + rank / n) * busy
            moments[rank].append(
                Moment(began, began + took / 8, began + took * 7 / 8, began + took)
            )
    if wrong_chunk is not None:
        rank, chunk = wrong_chunk
        holdings.held[rank][chunk] = holdings.held[rank][chunk] - 10
        values[rank][-1][chunk] = _first(holdings.held[rank][chunk])
    outcomes = []
    for rank, held in enumerate(holdings.held):
        wrong = []
        for chunk in schedule.due(rank):
            right = sum(start[each][chunk] for each in schedule.complete(chunk))
            if (held[chunk] != right).any():
                at = int(np.flatnonzero(held[chunk] != right)[0])
                got, expected = float(held[chunk][at]), float(right[at])
                wrong.append(WrongChunk(rank, chunk, at, got, expected))
        checked = sum(map(schedule.sizes.of, schedule.due(rank)))
        trace = RankTrace(
            rank,
            {chunk: _first(each) for chunk, each in start[rank].items()},
            tuple(values[rank]),
            tuple(moments[rank]),
            sent[rank],
            Verification(not wrong, checked, len(wrong)),
            tuple(wrong),
        )
        outcomes.append(Returned(rank=rank, value=trace))
    world = WorldReport(WorldSpec(n), tuple(outcomes), None, 0.1, "fork", "")
    return replace(make_report(spec, world), versions=VERSIONS)


def _first(numbers: Any) -> tuple[float, ...]:
    return tuple(map(float, numbers[:4]))
