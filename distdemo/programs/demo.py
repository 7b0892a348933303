"""The demo: run one op once, on every rank, and keep what each held before and after."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from distdemo.model import Holding, OpSpec, RankRecord
from distdemo.ops.buffers import expected, make_buffers
from distdemo.ops.contract import Op, Undefined
from distdemo.outcomes import Returned, WorldReport
from distdemo.programs.holding import keep
from distdemo.programs.verify import verify
from distdemo.programs.witness import Timing, witness
from distdemo.reports import OpReport
from distdemo.versions import versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distdemo.launchers.rank import Rank
    from distdemo.ops.contract import Buffers


def demo(rank: Rank, op: Op, spec: OpSpec) -> RankRecord:
    """Collective: run the op on this rank, verify it, and say what was held before and after."""
    buffers = make_buffers(op, rank.rank, spec, rank.device)
    before = keep(buffers.send, [rank.rank] * len(buffers.send), listed=op.list_before)
    timing = _run(rank, op, spec, buffers)
    wanted = expected(op, rank.rank, spec)
    verification = verify(buffers.recv, wanted)
    after = _after(op, rank.rank, spec, buffers.recv)
    exact = verification.ok and verification.tolerance == 0
    should = after if exact else _after(op, rank.rank, spec, [w.tensor for w in wanted or ()])
    return RankRecord(
        rank=rank.rank,
        takes_part=op.takes_part(rank.rank, spec),
        before=before,
        after=after,
        expected=should,
        verification=verification,
        seconds=timing.seconds,
        launch_seconds=timing.launch_seconds,
        wait_seconds=timing.wait_seconds,
        events=timing.events,
    )


def report(op: Op, spec: OpSpec, world: WorldReport) -> OpReport:
    """Everything that the views of a demo are drawn from."""
    records = [outcome.value for outcome in world.outcomes if isinstance(outcome, Returned)]
    return OpReport(
        spec, world, op.traffic(spec), _on_one_clock(records), op.notes(spec), versions()
    )


def _on_one_clock(records: list[RankRecord]) -> tuple[RankRecord, ...]:
    """The records with their events counted from the first event of the world."""
    first = min((event.at for record in records for event in record.events), default=0.0)
    return tuple(
        replace(record, events=tuple(replace(e, at=e.at - first) for e in record.events))
        for record in records
    )


def _run(rank: Rank, op: Op, spec: OpSpec, buffers: Buffers) -> Timing:
    """Collective: the call itself, timed; non-blocking ones are watched step by step."""
    if not op.takes_part(rank.rank, spec) and not spec.async_op:
        return Timing(0.0)
    rank.reach(f"entered {op.name}")
    if spec.async_op:
        timing = witness(rank, op, spec, buffers)
    else:
        started = time.perf_counter()
        op.run(buffers, spec, None, async_op=False)
        rank.synchronize()
        timing = Timing(time.perf_counter() - started)
    rank.reach(f"left {op.name}")
    return timing


def _after(op: Op, rank: int, spec: OpSpec, tensors: Sequence[Tensor]) -> Holding:
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return Holding(undefined=True)
    sources = [None if source.reduced else source.ranks[0] for source in result]
    return keep(tensors, sources, listed=op.list_after)
