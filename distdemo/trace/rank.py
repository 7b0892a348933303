"""Function that every rank of ``trace`` runs: run the schedule, record it, verify the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import ops, schedules
from distdemo.ops.buffers import Expected, expected, held_before
from distdemo.ops.verify import verify
from distdemo.schedules.run import Runner, run_all
from distdemo.schedules.schedule import Schedule
from distdemo.trace.records import Moment, RankTrace, TraceSpec, WrongChunk

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank
    from distdemo.ops.spec import Number, Verification

Numbers = tuple["Number | str", ...]
"""First numbers of a chunk."""
MOST_NUMBERS = 4  # numbers recorded per chunk
HEARTBEAT_S = 0.5  # seconds between two progress messages to the launcher


def trace(rank: Rank, spec: TraceSpec) -> RankTrace:
    """Run the schedule and record what this rank holds after each round. Collective.

    It runs twice, and only the second run is recorded: the first one opens the connections and
    touches memory for the first time.

    Args:
        rank: Handle of this rank. Every rank of the world takes part.
        spec: Run to trace, the same on all ranks.
    """
    op = ops.REGISTRY[spec.op.op]
    schedule = schedules.schedule(spec.op, spec.algorithm, spec.chunks)
    runner = Runner(rank.rank, schedule, spec.op, rank.device)
    runner.fill(held_before(op, rank.rank, spec.op))
    name = f"{spec.algorithm} {spec.op.op}"
    rank.report_phase(f"entered {name}")
    if rank.device != "cpu":  # NCCL's first call needs all ranks; a round may involve only some
        dist.all_reduce(torch.zeros(1, device=rank.device))
    runner.reset()
    runner.run()
    runner.reset()
    rank.synchronize()
    rank.barrier(f"the start of {name}")
    start, values_by_round, moments = run_recorded(rank, runner, schedule)
    rank.report_phase(f"left {name}")
    wanted = expected(op, rank.rank, spec.op)
    verification = verify(runner.result(), wanted)
    return RankTrace(
        rank.rank,
        start,
        tuple(values_by_round),
        tuple(moments),
        runner.sent_bytes,
        verification,
        tuple(_wrong_chunks(rank.rank, schedule, runner, wanted or [], verification)),
    )


def run_recorded(
    rank: Rank, runner: Runner, schedule: Schedule
) -> tuple[dict[int, Numbers], list[dict[int, Numbers]], list[Moment]]:
    """Run all rounds and record what changed in each, and when. Collective.

    Args:
        rank: Handle of this rank, used to report progress to the launcher.
        runner: Runner of the schedule, reset.
        schedule: Schedule of all ranks.

    Returns:
        First numbers of all chunks before the first round; those of the changed chunks after
        each round; times of each round on this rank, by this machine's clock.
    """

    def numbers(chunks: Iterable[int]) -> dict[int, Numbers]:
        return {chunk: first_numbers(runner.chunk(chunk)) for chunk in sorted(chunks)}

    run_all(runner.before)
    rank.synchronize()
    start = numbers(runner.held)
    values: list[dict[int, Numbers]] = []
    moments = []
    last_report = perf_counter()
    for role, prepared in zip(runner.roles, runner.rounds, strict=True):
        changed = role.arrived
        began = posted = arrived = perf_counter()
        if prepared is not None:
            runner.post(prepared)
            posted = perf_counter()
            runner.wait()
            rank.synchronize()
            arrived = perf_counter()
            run_all(prepared.unpack)
        if role is runner.roles[-1] and runner.after:
            run_all(runner.after)
            changed |= frozenset(schedule.due(rank.rank))
        rank.synchronize()
        ended = perf_counter()
        is_idle = prepared is None
        moments.append(Moment(*[ended] * 4) if is_idle else Moment(began, posted, arrived, ended))
        runner.held = role.held
        values.append(numbers(changed & runner.held))
        if ended - last_report > HEARTBEAT_S:
            rank.send(None)
            last_report = ended
    return start, values, moments


def first_numbers(chunk: Tensor) -> Numbers:
    """Return the first numbers of a chunk; an invalid bool (not 0 or 1) as ``byte 7``."""
    head = chunk[:MOST_NUMBERS].cpu()
    if head.dtype != torch.bool:
        return tuple(head.tolist())
    return tuple(
        bool(byte) if byte < 2 else f"byte {byte}" for byte in head.view(torch.uint8).tolist()
    )


def _wrong_chunks(
    rank: int,
    schedule: Schedule,
    runner: Runner,
    wanted: list[Expected],
    verification: Verification,
) -> Iterator[WrongChunk]:
    """Yield the chunks that this rank should hold but that are missing or wrong."""
    for index, chunk in enumerate(schedule.due(rank)):
        whole = wanted[0 if schedule.goal.whole else index]
        tensor, bound = whole.tensor.reshape(-1), whole.bound
        first, end = 0, tensor.numel()
        if schedule.goal.whole:
            first, end = schedule.sizes.before(chunk), schedule.sizes.before(chunk + 1)
        if first == end:
            continue
        right = tensor[first:end]
        if chunk not in runner.held:
            yield WrongChunk(rank, chunk, None, None, first_numbers(right)[0])
        elif not verification.ok:
            cut = None if bound is None else bound.reshape(-1)[first:end]
            for miss in verify([runner.chunk(chunk)], [Expected(right, cut)]).mismatches[:1]:
                yield WrongChunk(rank, chunk, miss.index[0], miss.got, miss.expected)
