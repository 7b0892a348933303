"""Runs for view tests, made without processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from distdemo import ops, schedules
from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.ops.buffers import held_before
from distdemo.ops.spec import Mismatch, OpSpec, Verification
from distdemo.schedules.schedule import Schedule
from distdemo.trace.records import Numbers, RankTrace, TraceReport
from distdemo.trace.report import Holdings, make_report

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
    pieces = [piece.reshape(-1).numpy() for piece in held_before(ops.REGISTRY[spec.op], rank, spec)]
    if schedule.goal.whole and pieces:
        ends = [schedule.sizes.before(chunk) for chunk in range(1, schedule.sizes.chunks)]
        pieces = np.split(pieces[0], ends)
    return dict(zip(schedule.given(rank), pieces, strict=False))


def real(
    op: str, name: str, n: int, elements: int, *, wrong_rank: int | None = None, root: int = 0
) -> TraceReport:
    """Return the report of a made-up run.

    Args:
        op: Op to run.
        name: Name of the algorithm.
        n: Number of ranks.
        elements: Elements of one tensor or part.
        wrong_rank: Rank whose first element is 10 too small, or None.
        root: Root of the op.
    """
    spec = spec_of(op, n, elements, root=root)
    algorithm = schedules.find(op, name)
    schedule = schedules.schedule(spec, name)
    start = [chunks_before(schedule, rank, spec) for rank in range(n)]
    holdings = Holdings(schedule, start, np.add)
    values: list[list[dict[int, Any]]] = [[] for _ in range(n)]
    for exchange in schedule.exchanges():
        holdings.play(exchange)
        for rank in range(n):
            arrived = {chunk for t in exchange.transfers if t.dst == rank for chunk in t.chunks}
            values[rank].append({c: _first(holdings.held[rank][c]) for c in sorted(arrived)})
    outcomes = []
    for rank in range(n):
        checked = sum(map(schedule.sizes.of, schedule.due(rank)))
        verification = Verification(ok=True, checked=checked)
        if rank == wrong_rank:
            mismatch = Mismatch(0, (0,), 50.0, 60.0)
            verification = Verification(False, checked, 1, mismatches=(mismatch,))
        first = {chunk: _first(numbers) for chunk, numbers in start[rank].items()}
        trace = RankTrace(first, tuple(values[rank]), verification)
        outcomes.append(Returned(rank=rank, value=trace))
    world = WorldReport(WorldSpec(n), tuple(outcomes), None, 0.1, "fork", "")
    return replace(make_report(spec, algorithm, world), versions=VERSIONS)


def _first(numbers: Any) -> Numbers:
    return tuple(map(float, numbers[:16]))
