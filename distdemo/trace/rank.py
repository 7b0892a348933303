"""Function that every rank of ``trace`` runs: run the schedule, record it, verify the result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import ops, schedules
from distdemo.ops.buffers import expected, held_before, verify
from distdemo.ops.spec import OpSpec
from distdemo.schedules.run import Runner
from distdemo.trace.records import Numbers, RankTrace

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

MOST_NUMBERS = 16  # numbers recorded per chunk


def trace(rank: Rank, spec: OpSpec, algorithm: str) -> RankTrace:
    """Run the schedule and record what this rank holds after each round. Collective.

    Args:
        rank: Handle of this rank. Every rank of the world takes part.
        spec: Op with its data, the same on all ranks.
        algorithm: Name of the algorithm.
    """
    op = ops.REGISTRY[spec.op]
    schedule = schedules.schedule(spec, algorithm)
    runner = Runner(rank.rank, schedule, spec, rank.device)
    for place, piece in zip(runner.inputs(), held_before(op, rank.rank, spec), strict=False):
        place.copy_(piece.reshape(-1))  # what the op only overwrites has no place
    runner.reset()

    def numbers(chunks: Iterable[int]) -> dict[int, Numbers]:
        return {chunk: first_numbers(runner.chunk(chunk)) for chunk in sorted(chunks)}

    rank.report_phase(f"entered {algorithm} {spec.op}")
    if rank.device != "cpu":  # NCCL's first call needs all ranks; a round may involve only some
        dist.all_reduce(torch.zeros(1, device=rank.device))
    start = numbers(schedule.given(rank.rank))
    values: list[dict[int, Numbers]] = []
    runner.run(lambda arrived: values.append(numbers(arrived)))
    if values:  # an average is divided after the last round
        values[-1] |= numbers(schedule.due(rank.rank))
    rank.report_phase(f"left {algorithm} {spec.op}")
    verification = verify(runner.result(), expected(op, rank.rank, spec))
    return RankTrace(start, tuple(values), verification)


def first_numbers(chunk: Tensor) -> Numbers:
    """Return the first numbers of a chunk; an invalid bool (not 0 or 1) as ``byte 7``."""
    head = chunk[:MOST_NUMBERS].cpu()
    if head.dtype != torch.bool:
        return tuple(head.tolist())
    return tuple(
        bool(byte) if byte < 2 else f"byte {byte}" for byte in head.view(torch.uint8).tolist()
    )
