"""Run one op on every rank, verify it, and record the data before and after.

For non-blocking calls, record when each returned, the buffer at that time, and the wait. Where an
op has several calls (irecv, then isend), the ranks synchronize through the store in between:
every irecv returns before any isend is called, and every isend before any wait. So the events
prove that the calls returned before the data could have arrived; it isn't just timing.

At a barrier, every rank increments a counter in the store before the call, and reads it after
the call. A rank that reads less than the group size left too early. This needs no synchronized
clocks.
"""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from distdemo import backends
from distdemo.demo.part import GroupRole, Groups, inference, part_of
from distdemo.demo.records import (
    Attendance,
    CallStep,
    Event,
    HelloReport,
    Holding,
    Introduction,
    Mismatch,
    ObjectPiece,
    OpReport,
    Piece,
    RankResult,
    Verification,
)
from distdemo.demo.verify import same, verify, verify_objects
from distdemo.launcher.clock import HOST, Clock, clock_of
from distdemo.launcher.rank import Rank
from distdemo.launcher.records import Returned, WorldReport
from distdemo.ops.buffers import expected, expected_objects, make_buffers
from distdemo.ops.contract import Buffers, Op, Undefined
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import pickled_size
from distdemo.versions import versions

WHOLE = 1024  # largest number of elements that is kept whole
ENDS = 16  # elements kept at each end of a larger tensor
PIECES = 16  # pieces kept at each end of a longer list


def hello(rank: Rank) -> Introduction:
    """Introduce this rank; count the ranks with an all_reduce. Collective."""
    present = torch.ones(1, dtype=torch.int32, device=rank.device)
    rank.reach("entered all_reduce")
    dist.all_reduce(present)
    rank.reach("left all_reduce")
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
    part = part_of(rank.rank, op, specs)
    group = Groups(rank.backend).of(specs, part)
    with inference(part.spec):
        op, spec = part.op, part.spec
        buffers = make_buffers(op, part.rank, spec, rank.device)
        own = [rank.rank] * len(buffers.send)
        before = summarize(buffers.send, own, spec, listed=op.list_before)
        call = run_part(rank, part, buffers, group)
        verification = verify_part(part, buffers, call.attendance)
        after = wanted = _after(part, buffers.recv)
        if not verification.ok or verification.tolerance:
            wanted = _after(part, _wanted(part))
    return RankResult(
        rank=rank.rank,
        takes_part=op.takes_part(part.rank, spec),
        before=before,
        after=after,
        expected=wanted,
        verification=verification,
        time_s=call.time_s,
        launch_s=call.launch_s,
        wait_s=call.wait_s,
        clock=call.clock,
        events=call.events,
        steps=tuple(
            CallStep(name, summarize(tensors, [None] * len(tensors), listed=True), sent)
            for name, tensors, sent in buffers.trail
        ),
        attendance=call.attendance,
        group=part.group or 0,
        group_rank=None if part.group is None else part.rank,
    )


# --------------------------------------------------------------------------------------- the call


@dataclass(frozen=True, slots=True)
class Call:
    """Timing and events of a call; the fields are those of ``RankResult``."""

    time_s: float = 0.0
    launch_s: float | None = None
    wait_s: float | None = None
    clock: str = HOST
    events: tuple[Event, ...] = ()
    attendance: Attendance | None = None


def run_part(rank: Rank, part: GroupRole, buffers: Buffers, group: ProcessGroup | None) -> Call:
    """Make the call and time it; record each step of non-blocking calls. Collective."""
    op, spec = part.op, part.spec
    if spec.objects and spec.group_size == 1:  # there is no other rank to send a pickle to
        buffers.recv[:] = buffers.send
        return Call()
    if not op.takes_part(part.rank, spec) and not spec.async_op:
        return Call()
    where = f", {part.name}" if part.name else ""
    if not op.is_barrier:
        rank.reach(f"entered {op.name}{where}")
        call = _call(rank, part, buffers, group)
        rank.reach(f"left {op.name}{where}")
        return call
    counter = f"barrier/{part.name}/{spec.member(0)}"
    if spec.straggler == part.rank:
        # Stop sleeping if another rank has left the barrier: that is already wrong.
        until = time.monotonic() + spec.straggler_delay_s
        while (rest := until - time.monotonic()) > 0 and rank.count(f"{counter}/left") == 0:
            time.sleep(min(rest, 0.002))
    rank.reach(f"entered {op.name}{where}")
    arrived = time.monotonic()
    rank.count(counter, 1)
    call = _call(rank, part, buffers, group)
    left = time.monotonic()
    present = rank.count(counter)
    rank.count(f"{counter}/left", 1)
    rank.reach(f"left {op.name}{where}")
    return replace(call, attendance=Attendance(arrived, left, present))


def _call(rank: Rank, part: GroupRole, buffers: Buffers, group: ProcessGroup | None) -> Call:
    """Make the call and time it. Collective."""
    op, spec = part.op, part.spec
    # Objects and barriers are timed on the host.
    clock = clock_of("cpu" if spec.objects or op.is_barrier else rank.device)
    if spec.async_op:
        return _nonblocking(rank, part, buffers, group, clock)
    started = clock.mark()
    op.run(buffers, spec, group, async_op=False)
    seconds = clock.between(started, clock.mark())
    rank.synchronize()
    return Call(seconds, clock=clock.name)


def _nonblocking(
    rank: Rank, part: GroupRole, buffers: Buffers, group: ProcessGroup | None, clock: Clock
) -> Call:
    """Make the non-blocking calls, wait for them, and time both. Collective.

    The host's clock times the calls. The device's clock times the wait, as on a GPU ``wait``
    itself may return at once.
    """
    op, spec = part.op, part.spec
    stages = op.stages(buffers, spec, group)
    records_events = len(stages) > 1 or "nonblocking" in op.takes
    original = {id(each): each.clone() for each in [*buffers.send, *buffers.recv] if records_events}
    events: list[Event] = []

    def record(what: str, tensors: Sequence[Tensor], rule: str) -> None:
        now = time.monotonic()
        unchanged = all(same(tensor, original[id(tensor)]) for tensor in tensors)
        held = summarize(tensors, [None] * len(tensors))
        events.append(Event(rank.rank, now, what, held, unchanged, rule))

    handles: list[Any] = []
    launch = 0.0
    for number, stage in enumerate(stages):
        started = time.perf_counter()
        new_handles = stage.call()
        launch += time.perf_counter() - started
        handles += new_handles
        if records_events:
            if new_handles:
                record(f"{stage.name} returned", stage.tensors, stage.rule)
            rank.barrier(f"{part.name}/{number}/{spec.member(0)}", spec.group_size)
    wait_started = clock.mark()
    for handle in handles:
        handle.wait()
    waited = clock.between(wait_started, clock.mark())
    rank.synchronize()
    if records_events and handles:
        record("wait returned", buffers.recv, "free to be used")
    return Call(launch + waited, launch, waited, clock.name, tuple(events))


def verify_part(part: GroupRole, buffers: Buffers, attendance: Attendance | None) -> Verification:
    """Compare this rank's result with the expected one.

    A barrier is right if the whole group had arrived when this rank left.
    """
    op, rank, spec = part.op, part.rank, part.spec
    if attendance is not None:
        if attendance.present == spec.group_size:
            return Verification(ok=True, checked=1)
        miss = Mismatch(0, (), attendance.present, spec.group_size)
        return Verification(ok=False, checked=1, wrong=1, mismatches=(miss,))
    if op.is_barrier:
        return Verification(ok=True, checked=0)
    if spec.objects:
        return verify_objects(buffers.recv, expected_objects(op, rank, spec))
    return verify(buffers.recv, expected(op, rank, spec))


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


def _after(part: GroupRole, held: Sequence[Any]) -> Holding:
    op, spec = part.op, part.spec
    result = op.result(part.rank, spec)
    if isinstance(result, Undefined):
        return Holding(undefined=True)
    sources = [None if each.reduced else spec.member(each.ranks[0]) for each in result]
    return summarize(held, sources, spec, listed=op.is_listed(spec))


def _wanted(part: GroupRole) -> list[Any]:
    """Return the expected result of this rank."""
    op, rank, spec = part.op, part.rank, part.spec
    if spec.objects:
        return expected_objects(op, rank, spec)
    return [each.tensor for each in expected(op, rank, spec) or ()]


# ------------------------------------------------------------------------------------ the reports


def hello_report(world: WorldReport) -> HelloReport:
    """Return the report of ``hello``."""
    found = versions() | backends.versions_of(world.world)
    return HelloReport(world, tuple(world.values) if world.ok else (), found)


def op_report(op: Op, specs: tuple[OpSpec, ...], world: WorldReport) -> OpReport:
    """Return the report of an op that ran."""
    spec, form = specs[0], op.form(specs[0])
    results = [each.value for each in world.outcomes if isinstance(each, Returned)]
    asked = world.world
    backend = backends.REGISTRY.get(asked.backend) if asked.world_size > 1 else None
    return OpReport(
        spec=spec,
        groups=tuple(each.members for each in specs if each.members is not None),
        form=form.name,
        calls=form.call,
        traffic=op.traffic(spec),
        world=world,
        ranks=tuple(_since_the_first(results, world.hosts)) if world.ok else (),
        versions=versions() | backends.versions_of(asked),
        warning=backend.wrong(op, spec, asked.device) or "" if backend else "",
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
