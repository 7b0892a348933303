"""Run one op on every rank, verify it, and record the data before and after."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from distdemo import backends, ops
from distdemo.calls.record.summary import summarize
from distdemo.demo.records import (
    Event,
    HelloReport,
    Introduction,
    OpReport,
    RankResult,
)
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldReport
from distdemo.ops.buffers import laid_out, make_buffers
from distdemo.ops.contract import Buffers, Op, Undefined
from distdemo.ops.run import GroupRole, Groups, Observer, role_of, run_role, verify_role
from distdemo.ops.spec import OpSpec
from distdemo.versions import versions
from distdemo.view.held import UNDEFINED

MEETING = 64  # largest number of ranks that meet at a barrier, whose connections cost time


def hello(rank: Rank) -> Introduction:
    """Introduce this rank; count the ranks with an all_reduce. Collective."""
    present = torch.ones(1, dtype=torch.int32, device=rank.device)
    rank.report_phase("entered all_reduce")
    dist.all_reduce(present)
    rank.report_phase("left all_reduce")
    return Introduction(
        rank=rank.rank,
        world_size=dist.get_world_size(),
        pid=os.getpid(),
        host=socket.gethostname(),
        backend=dist.get_backend(),
        device=rank.device,
        startup_s=rank.startup_seconds,
        heard_from=int(present.item()),
    )


def run_op(rank: Rank, op: Op, specs: tuple[OpSpec, ...]) -> RankResult:
    """Run the op on this rank, verify it, and record the data before and after. Collective.

    Args:
        rank: This rank of the world.
        op: Op to run.
        specs: One spec per group; the groups run at the same time.
    """
    role = role_of(rank.rank, op, specs)
    group = Groups().of(specs, role)
    op = role.op
    spec = role.spec
    buffers = make_buffers(op, role.rank, spec, rank.device)
    own = [(rank.rank,)] * len(buffers.send)
    before = summarize(buffers.send, own)
    events: list[Event] = []
    start_together(rank, role, group)
    timing = run_role(rank, role, buffers, group, _recorder(rank, role, events))
    verification = verify_role(role, buffers, timing.present)
    after = UNDEFINED
    result = op.result(role.rank, spec)
    if not isinstance(result, Undefined):
        sources = [tuple(map(spec.member, part.ranks)) for part in result]
        after = summarize(buffers.recv, sources)
    return RankResult(
        rank=rank.rank,
        before=before,
        after=after,
        checked=verification.checked,
        wrong=verification.wrong,
        mismatches=verification.mismatches,
        tolerance=verification.tolerance,
        **asdict(timing),
        events=tuple(events),
        takes_part=op.takes_part(role.rank, spec),
        group=role.group,
        group_rank=None if role.group is None or role.rank == rank.rank else role.rank,
    )


def start_together(rank: Rank, role: GroupRole, group: ProcessGroup | None) -> None:
    """Connect the ranks of a group and let them meet at a barrier. Collective.

    So the time of the next call includes neither connection setup nor the wait for a rank that was
    started later. Backends connect the ranks that an algorithm needs at its first call, so this
    makes the same call on at most one element per dimension.
    """
    op = role.op
    spec = role.spec
    if role.group is None or spec.group_size == 1:
        return
    if not op.is_barrier:
        small = replace(
            spec,
            shape=_at_most_one(spec.shape),
            sizes=spec.sizes and _at_most_one(spec.sizes),
            splits=spec.splits and tuple(map(_at_most_one, spec.splits)),
            values=None,
            objects_json=None,
        )
        # Nobody reads the result, so only objects need a value. Filling tensors takes n steps.
        prepare = make_buffers if small.objects else laid_out
        op.run(prepare(op, role.rank, small, rank.device), small, group, async_op=False)
        rank.synchronize()
    if spec.group_size <= MEETING:
        barrier = ops.REGISTRY["barrier"]
        barrier.run(Buffers(), replace(spec, monitored=False), group, async_op=False)
    rank.report_phase("connected")


def _at_most_one(lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(1, length) for length in lengths)


def _recorder(rank: Rank, role: GroupRole, events: list[Event]) -> Observer | None:
    """Return an observer that appends the events of a point-to-point op; None for other calls."""
    if not role.spec.async_op or role.spec.objects or "nonblocking" not in role.op.takes:
        return None

    def record(call: str, called: float, tensors: Sequence[Tensor], rule: str) -> None:
        now = time.monotonic()
        events.append(Event(rank.rank, called, now, call, summarize(tensors), rule))

    return record


# ------------------------------------------------------------------------------------ the reports


def hello_report(world: WorldReport) -> HelloReport:
    """Return the report of ``hello``."""
    software = versions() | backends.versions_of(world.world)
    return HelloReport(world, tuple(world.values) if world.ok else (), software)


def op_report(op: Op, spec: OpSpec, report: WorldReport) -> OpReport:
    """Return the report of an op that ran."""
    world = report.world
    results = [outcome.value for outcome in report.outcomes if isinstance(outcome, Returned)]
    backend = backends.REGISTRY.get(world.backend) if world.world_size > 1 else None
    return OpReport(
        op=op.call(spec),
        spec=spec,
        group=spec.members or (),
        traffic=op.traffic(spec),
        world=report,
        ranks=tuple(_since_first_call(results, report.hosts)) if report.ok else (),
        versions=versions() | backends.versions_of(world),
        warning=backend.known_bug(op, spec) or "" if backend else "",
    )


def _since_first_call(results: Sequence[RankResult], hosts: Sequence[str]) -> Iterator[RankResult]:
    """Yield the results with times since the first call of the group.

    Clocks of hosts differ, so times are since the group's first call on the same host.
    """
    clocks = [(result.group, hosts[result.rank] if hosts else "") for result in results]
    first: dict[tuple[int | None, str], float] = {}
    for result, clock in zip(results, clocks, strict=True):
        if result.takes_part:
            first[clock] = min(first.get(clock, math.inf), result.started_s)
    for result, clock in zip(results, clocks, strict=True):
        start = first.get(clock, 0.0)
        events = tuple(
            replace(event, called_s=event.called_s - start, returned_s=event.returned_s - start)
            for event in result.events
        )
        started = result.started_s - start if result.takes_part else 0.0
        ended = result.ended_s - start if result.takes_part else 0.0
        yield replace(result, started_s=started, ended_s=ended, events=events)
