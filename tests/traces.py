"""Runs for view tests: on paper, or with made-up times of one millisecond per round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from distdemo import ops
from distdemo.demo.records import Verification
from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import element, value_rule
from distdemo.trace import algorithms
from distdemo.trace.play import Holdings, steps
from distdemo.trace.records import Fault, Moment, RankTrace, TraceReport, TraceSpec, WrongChunk
from distdemo.trace.report import make_report

VERSIONS = {"distdemo": "1.0", "torch": "2.0"}


def spec_of(op: str, n: int, elements: int, root: int = 0, **more: Any) -> OpSpec:
    takes = ops.REGISTRY[op].takes
    settings: dict[str, Any] = {"reduce_op": "sum"} if "reduce_op" in takes else {}
    settings |= {"root": root} if "root" in takes else {}
    return OpSpec(op, n, shape=(elements,), **settings | more)


def paper(op: str, name: str, n: int, elements: int, **how: Any) -> TraceReport:
    """Return the report of a run on paper."""
    fault, chunks = how.pop("fault", None), how.pop("chunks", None)
    spec = TraceSpec(spec_of(op, n, elements, **how), name, chunks, fault)
    return replace(make_report(spec), versions=VERSIONS)


def real(op: str, name: str, n: int, elements: int, **how: Any) -> TraceReport:
    """Return the report of a made-up run in which the last rank waits longest in every round."""
    fault: Fault | None = how.pop("fault", None)
    spec = TraceSpec(spec_of(op, n, elements, **how), name, None, fault)
    schedule = algorithms.schedule(spec.op, name)
    collective = ops.REGISTRY[op]
    start: list[dict[int, Any]] = [{} for _ in range(n)]
    for rank, held in enumerate(start):
        pieces = []
        for piece in range(collective.pieces(rank, spec.op)):
            cut = collective.cut(rank, piece, spec.op)
            values = value_rule(collective, spec.op)
            numbers = [element(values, cut.label, cut.start + at) for at in range(cut.numel)]
            pieces.append(np.array(numbers, dtype=float))
        if schedule.goal.whole and pieces:
            ends = [schedule.sizes.before(chunk) for chunk in range(1, schedule.sizes.chunks)]
            pieces = np.split(pieces[0], ends)
        held.update(zip(schedule.given(rank), pieces, strict=False))
    holdings = Holdings(schedule, start, np.add, absent=np.array([]))
    values_: list[list[dict[int, Any]]] = [[] for _ in range(n)]
    moments: list[list[Moment]] = [[] for _ in range(n)]
    sent = [0] * n
    for step in steps(schedule, fault):
        holdings.play(step)
        busy = {end for t in step.transfers if t.elements for end in (t.src, t.dst)}
        for each in step.transfers:
            sent[each.src] += 4 * each.elements
        for rank in range(n):
            came = {chunk for t in step.transfers if t.dst == rank for chunk in t.chunks}
            values_[rank].append({c: _first(holdings.held[rank][c]) for c in sorted(came)})
            began, took = 1e-3 * (step.number - 1), 5e-4 * (1 + rank / n) * (rank in busy)
            times = (began, began + took / 8, began + took * 7 / 8, began + took)
            moments[rank].append(Moment(*times if took else (began,) * 4))
    outcomes = []
    for rank in range(n):
        wrong = []
        for chunk in schedule.due(rank):
            right = sum(start[each][chunk] for each in schedule.complete(chunk))
            got = holdings.held[rank].get(chunk)
            off: Any = [] if got is None else np.flatnonzero(got != right)
            if got is None:
                wrong.append(WrongChunk(rank, chunk, None, None, float(right[0])))
            elif len(off):
                at = int(off[0])
                wrong.append(WrongChunk(rank, chunk, at, float(got[at]), float(right[at])))
        checked = sum(schedule.sizes.of(chunk) for chunk in schedule.due(rank))
        value = RankTrace(
            rank,
            {chunk: _first(each) for chunk, each in start[rank].items()},
            tuple(values_[rank]),
            tuple(moments[rank]),
            sent[rank],
            Verification(not wrong, checked, len(wrong)),
            tuple(wrong),
        )
        outcomes.append(Returned(rank=rank, value=value))
    world = WorldReport(WorldSpec(n), tuple(outcomes), None, 0.1, "fork", "")
    return replace(make_report(spec, world), versions=VERSIONS)


def _first(numbers: Any) -> tuple[float, ...]:
    return tuple(map(float, numbers[:4]))
