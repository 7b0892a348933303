"""Run one op on every rank, verify it, and record the data before and after."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from distdemo import backends
from distdemo.demo.records import (
    CallStep,
    Event,
    HelloReport,
    Holding,
    Introduction,
    ObjectPiece,
    OpReport,
    Piece,
    RankResult,
)
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldReport
from distdemo.ops.buffers import make_buffers
from distdemo.ops.contract import Buffers, Op, Undefined
from distdemo.ops.groups import GroupRole, Groups, inference, role_of
from distdemo.ops.run import Observer, run_role, verify_role
from distdemo.ops.spec import OpSpec, pickled_size
from distdemo.ops.verify import same
from distdemo.versions import versions

WHOLE = 1024  # largest number of elements that is kept whole
ENDS = 16  # elements kept at each end of a larger tensor
PIECES = 16  # pieces kept at each end of a longer list


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
    group = Groups(rank.backend).of(specs, role)
    with inference(role.spec):
        op, spec = role.op, role.spec
        buffers = make_buffers(op, role.rank, spec, rank.device)
        own = [rank.rank] * len(buffers.send)
        before = summarize(buffers.send, own, spec, listed=op.list_before)
        events: list[Event] = []
        timing = run_role(rank, role, buffers, group, _recorder(rank, role, buffers, events))
        verification = verify_role(role, buffers, timing.attendance)
        after = _after(role, buffers.recv)
    return RankResult(
        rank=rank.rank,
        before=before,
        after=after,
        checked=verification.checked,
        wrong=verification.wrong,
        mismatches=verification.mismatches,
        tolerance=verification.tolerance,
        time_s=timing.time_s,
        launch_s=timing.launch_s,
        wait_s=timing.wait_s,
        clock=timing.clock,
        events=tuple(events),
        steps=tuple(
            CallStep(name, summarize(tensors, [None] * len(tensors), listed=True), sent)
            for name, tensors, sent in buffers.trail
        ),
        attendance=timing.attendance,
        takes_part=op.takes_part(role.rank, spec),
        group=role.group,
        group_rank=None if role.group is None or role.rank == rank.rank else role.rank,
    )


def _recorder(
    rank: Rank, role: GroupRole, buffers: Buffers, events: list[Event]
) -> Observer | None:
    """Return an observer that appends the events of a point-to-point op; None for other calls."""
    if not role.spec.async_op or role.spec.objects or "nonblocking" not in role.op.takes:
        return None
    original = {id(each): each.clone() for each in [*buffers.send, *buffers.recv]}

    def record(what: str, tensors: Sequence[Tensor], rule: str) -> None:
        now = time.monotonic()
        unchanged = all(same(tensor, original[id(tensor)]) for tensor in tensors)
        held = summarize(tensors, [None] * len(tensors))
        events.append(Event(rank.rank, now, what, held, unchanged, rule))

    return record


# --------------------------------------------------------------------------------------- summaries


def summarize(
    held: Sequence[Any],
    sources: Sequence[int | None],
    spec: OpSpec | None = None,
    *,
    listed: bool = False,
) -> Holding:
    """Return small tensors and objects whole, and the ends of large ones.

    Args:
        held: Pieces in order, on any device.
        sources: Source rank of each piece, or None if it was reduced.
        spec: Spec of the op, if the pieces may be objects or lie in a single tensor.
        listed: True if the rank has a list here.
    """
    if spec is not None and spec.objects:
        pairs = zip(held, sources, strict=True)
        objects = tuple(ObjectPiece(each, pickled_size(each), rank) for each, rank in pairs)
        return Holding(objects, listed=listed)
    joined = listed and spec is not None and spec.is_joined
    whole = sum(tensor.numel() for tensor in held) <= WHOLE
    kept = list(zip(held, sources, strict=True))
    if not whole and len(kept) > 2 * PIECES:
        kept = kept[:PIECES] + kept[-PIECES:]
    pieces = []
    for tensor, source in kept:
        flat = tensor.detach().reshape(-1)
        cut = not whole and flat.numel() > 2 * ENDS
        first, last = (flat[:ENDS], flat[-ENDS:]) if cut else (flat, flat[:0])
        piece = Piece(tuple(tensor.shape), tuple(first.tolist()), tuple(last.tolist()), source)
        pieces.append(piece)
    omitted = len(held) - len(pieces)
    return Holding(tuple(pieces), omitted, listed=listed and not joined, joined=joined)


def _after(role: GroupRole, held: Sequence[Any]) -> Holding:
    op, spec = role.op, role.spec
    result = op.result(role.rank, spec)
    if isinstance(result, Undefined):
        return Holding(undefined=True)
    sources = [None if each.reduced else spec.member(each.ranks[0]) for each in result]
    return summarize(held, sources, spec, listed=op.is_listed(spec))


# ------------------------------------------------------------------------------------ the reports


def hello_report(world: WorldReport) -> HelloReport:
    """Return the report of ``hello``."""
    software = versions() | backends.versions_of(world.world)
    return HelloReport(world, tuple(world.values) if world.ok else (), software)


def op_report(op: Op, specs: tuple[OpSpec, ...], world: WorldReport) -> OpReport:
    """Return the report of an op that ran."""
    spec = specs[0]
    results = [each.value for each in world.outcomes if isinstance(each, Returned)]
    asked = world.world
    backend = backends.REGISTRY.get(asked.backend) if asked.world_size > 1 else None
    return OpReport(
        op=op.call(spec),
        spec=spec,
        groups=tuple(each.members for each in specs if each.members is not None),
        traffic=op.traffic(spec),
        world=world,
        ranks=tuple(_since_the_first(results, world.hosts)) if world.ok else (),
        versions=versions() | backends.versions_of(asked),
        warning=backend.known_bug(op, spec, asked.device) or "" if backend else "",
    )


def _since_the_first(results: Sequence[RankResult], hosts: Sequence[str]) -> Iterator[RankResult]:
    """Yield the results with times since the first event of the world.

    With several hosts, times are since the first event on each host: their clocks differ.
    """
    times: defaultdict[str, list[float]] = defaultdict(list)
    home = {each.rank: hosts[each.rank] if hosts else "" for each in results}
    for each in results:
        times[home[each.rank]] += [event.at_s for event in each.events]
        times[home[each.rank]] += [each.attendance.arrived_s] if each.attendance else []
    for each in results:
        first = min(times[home[each.rank]], default=0.0)
        events = tuple(replace(event, at_s=event.at_s - first) for event in each.events)
        attendance = each.attendance
        if attendance is not None:
            attendance = replace(
                attendance,
                arrived_s=attendance.arrived_s - first,
                left_s=attendance.left_s - first,
            )
        yield replace(each, events=events, attendance=attendance)
