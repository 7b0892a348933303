"""Function that every rank of ``trace`` runs: run the schedule, record it, verify the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import ops, schedules
from distdemo.ops.buffers import Expected, expected
from distdemo.ops.verify import verify
from distdemo.schedules.schedule import Schedule
from distdemo.trace.records import RankTrace, TraceSpec, WrongChunk
from distdemo.trace.runner import Runner, first_numbers

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.ops.spec import Verification


def trace(rank: Rank, spec: TraceSpec) -> RankTrace:
    """Run the schedule and record what this rank holds after each round. Collective.

    It runs twice, and only the second run is recorded: the first one opens the connections and
    touches memory for the first time.

    Args:
        rank: Handle of this rank. Every rank of the world takes part.
        spec: Run to trace, the same on all ranks.
    """
    schedule = schedules.schedule(spec.op, spec.algorithm, spec.chunks)
    runner = Runner(rank.rank, schedule, spec.op, rank.device)
    name = f"{spec.algorithm} {spec.op.op}"
    rank.report_phase(f"entered {name}")
    if rank.device != "cpu":  # NCCL's first call needs all ranks; a round may involve only some
        dist.all_reduce(torch.zeros(1, device=rank.device))
    runner.reset()
    runner.run()
    runner.reset()
    rank.synchronize()
    rank.barrier(f"the start of {name}")
    start, values, moments = runner.run_recorded(rank)
    rank.report_phase(f"left {name}")
    wanted = expected(ops.REGISTRY[spec.op.op], rank.rank, spec.op)
    verification = verify(runner.result(), wanted)
    return RankTrace(
        rank.rank,
        start,
        tuple(values),
        tuple(moments),
        runner.sent_bytes,
        verification,
        tuple(_wrong_chunks(rank.rank, schedule, runner, wanted or [], verification)),
    )


def _wrong_chunks(
    rank: int,
    schedule: Schedule,
    runner: Runner,
    wanted: list[Expected],
    verification: Verification,
) -> Iterator[WrongChunk]:
    """Yield the chunks that this rank should hold but that are missing or wrong."""
    held = runner.chunks()
    for index, chunk in enumerate(schedule.due(rank)):
        whole = wanted[0 if schedule.goal.whole else index]
        tensor, bound = whole.tensor.reshape(-1), whole.bound
        first, end = 0, tensor.numel()
        if schedule.goal.whole:
            first, end = schedule.sizes.before(chunk), schedule.sizes.before(chunk + 1)
        if first == end:
            continue
        right = tensor[first:end]
        if chunk not in held:
            yield WrongChunk(rank, chunk, None, None, first_numbers(right)[0])
        elif not verification.ok:
            cut = None if bound is None else bound.reshape(-1)[first:end]
            for miss in verify([held[chunk]], [Expected(right, cut)]).mismatches[:1]:
                yield WrongChunk(rank, chunk, miss.index[0], miss.got, miss.expected)
