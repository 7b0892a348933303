"""The demo: run one op once, on every rank, and keep what each held before and after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distdemo.model import Holding, OpReport, OpSpec, RankRecord, Returned, WorldReport
from distdemo.ops.contract import Op, Undefined
from distdemo.versions import versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distdemo.launchers.rank import Rank
    from distdemo.ops.contract import Buffers
    from distdemo.programs.witness import Timing


def demo(rank: Rank, op: Op, spec: OpSpec) -> RankRecord:
    """Collective: run the op on this rank, verify it, and say what was held before and after."""
    from distdemo.ops.buffers import expected, make_buffers
    from distdemo.programs.holding import keep
    from distdemo.programs.verify import verify

    buffers = make_buffers(op, rank.rank, spec, rank.device)
    before = keep(buffers.send, [rank.rank] * len(buffers.send))
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
    records = tuple(outcome.value for outcome in world.outcomes if isinstance(outcome, Returned))
    return OpReport(spec, world, op.traffic(spec), records, op.notes(spec), versions())


def _run(rank: Rank, op: Op, spec: OpSpec, buffers: Buffers) -> Timing:
    """Collective: the call itself, timed; non-blocking ones are watched step by step."""
    from distdemo.programs.witness import Timing, witness

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
    from distdemo.programs.holding import keep

    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return Holding(undefined=True)
    return keep(tensors, [None if source.reduced else source.ranks[0] for source in result])
