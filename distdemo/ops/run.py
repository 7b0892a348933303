"""Run one op in the role of one rank, time it and verify its result.

Where an op has several calls (irecv, then isend), the ranks synchronize through the store in
between: every irecv returns before any isend is called, and every isend before any wait. So an
observer sees that the calls returned before the data could have arrived; it isn't just timing.

At a barrier, every rank increments a counter in the store before the call, and reads it after
the call. A rank that reads less than the group size left too early. This needs no synchronized
clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from distdemo.launcher.clock import Clock, clock_of
from distdemo.ops.buffers import expected, expected_objects, verify, verify_objects
from distdemo.ops.contract import NonMember
from distdemo.ops.spec import CallTiming, Mismatch, OpSpec, Verification

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Buffers, Op

Observer = Callable[[str, float, "Sequence[Tensor]", str], object]
"""Callback after every call of a non-blocking op: the call (``irecv``), the time at which it was
made, its tensors, and the permitted use of them from here on."""

# ------------------------------------------------------------------------------- roles and groups


@dataclass(frozen=True, slots=True)
class GroupRole:
    """The op that one rank runs, and its group.

    Attributes:
        op: Op to run; ``NonMember`` for a rank in no group.
        spec: Spec of the rank's group.
        rank: Rank within the group.
        group: Index of the group, or None if the rank is in no group.
        name: Name of this op, unique in its world.
    """

    op: Op
    spec: OpSpec
    rank: int
    group: int | None
    name: str = ""


def role_of(rank: int, op: Op, specs: Sequence[OpSpec], name: str = "") -> GroupRole:
    """Return the role of a rank.

    Args:
        rank: Rank in the world.
        op: Op that the groups run.
        specs: One spec per group; their members don't overlap.
        name: Name of this op, unique in its world.
    """
    for number, spec in enumerate(specs):
        if spec.members is None:
            return GroupRole(op, spec, rank, number, name)
        if rank in spec.members:
            return GroupRole(op, spec, spec.members.index(rank), number, name)
    first = specs[0]
    spec = OpSpec(
        NonMember.name,
        1,
        dtype=first.dtype,
        shape=first.shape,
        objects=first.objects,
        seed=first.seed,
        members=(rank,),
    )
    return GroupRole(NonMember(), spec, 0, None, name)


class Groups:
    """Process groups of a world. All ranks create them once, in the same order."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], ProcessGroup] = {}

    def of(self, specs: Sequence[OpSpec], role: GroupRole) -> ProcessGroup | None:
        """Create the specs' groups; return this rank's, or None for the world. Collective."""
        for spec in specs:
            if spec.members is not None and spec.members not in self._groups:
                self._groups[spec.members] = dist.new_group(list(spec.members))
        members = None if role.group is None else role.spec.members
        return None if members is None else self._groups[members]


# ------------------------------------------------------------------------------------- the call


def run_role(
    rank: Rank,
    role: GroupRole,
    buffers: Buffers,
    group: ProcessGroup | None,
    observe: Observer | None = None,
) -> CallTiming:
    """Make the rank's call and time it. Collective.

    Args:
        rank: This rank of the world.
        role: Its op and group.
        buffers: Buffers of the call.
        group: Process group, or None for the world.
        observe: Observer of point-to-point ops.
    """
    op = role.op
    spec = role.spec
    if spec.objects and spec.group_size == 1:  # there is no other rank to send a pickle to
        buffers.recv[:] = buffers.send
        return CallTiming()
    if not op.takes_part(role.rank, spec) and not spec.async_op:
        return CallTiming()
    where = f", {role.name}" if role.name else ""
    counter = f"barrier/{role.name}/{spec.member(0)}"
    if spec.straggler == role.rank:
        # Stop sleeping if another rank has left the barrier: that is already wrong.
        until = time.monotonic() + spec.straggler_delay_s
        while (rest := until - time.monotonic()) > 0 and rank.count(f"{counter}/left") == 0:
            time.sleep(min(rest, 0.002))
    rank.report_phase(f"entered {op.name}{where}")
    if op.is_barrier:
        rank.count(counter, 1)
    timing = _call(rank, role, buffers, group, observe)
    present = rank.count(counter) if op.is_barrier else None
    if op.is_barrier:
        rank.count(f"{counter}/left", 1)
    rank.report_phase(f"left {op.name}{where}")
    return replace(timing, present=present)


def _call(
    rank: Rank,
    role: GroupRole,
    buffers: Buffers,
    group: ProcessGroup | None,
    observe: Observer | None,
) -> CallTiming:
    """Make the call and time it. Collective."""
    op = role.op
    spec = role.spec
    # Objects and barriers are timed on the host.
    clock = clock_of("cpu" if spec.objects or op.is_barrier else rank.device)
    if spec.async_op:
        return _nonblocking(rank, role, buffers, group, clock, observe)
    call = op.bind(buffers, spec, group, async_op=False)
    started_s = time.monotonic()
    started = clock.mark()
    call()
    ended = clock.mark()
    rank.synchronize()
    ended_s = time.monotonic()
    seconds = clock.between(started, ended)
    return CallTiming(seconds, clock=clock.name, started_s=started_s, ended_s=ended_s)


def _nonblocking(
    rank: Rank,
    role: GroupRole,
    buffers: Buffers,
    group: ProcessGroup | None,
    clock: Clock,
    observe: Observer | None,
) -> CallTiming:
    """Make the non-blocking calls, wait for them, and time both. Collective.

    The host's clock times the calls. The device's clock times the wait, as on a GPU ``wait``
    itself may return at once.
    """
    op = role.op
    spec = role.spec
    in_stages = "nonblocking" in op.takes
    handles: list[Any] = []
    launch = 0.0
    started_s = time.monotonic()
    for number, stage in enumerate(op.stages(buffers, spec, group)):
        started = time.monotonic()
        new_handles = stage.call()
        launch += time.monotonic() - started
        handles += new_handles
        if in_stages:
            if observe is not None and new_handles:
                observe(stage.name, started, stage.tensors, stage.rule)
            rank.barrier(f"{role.name}/{number}/{spec.member(0)}", spec.group_size)
    started = time.monotonic()
    wait_started = clock.mark()
    for handle in handles:
        handle.wait()
    waited = clock.between(wait_started, clock.mark())
    rank.synchronize()
    ended_s = time.monotonic()
    if in_stages and observe is not None and handles:
        observe("wait", started, buffers.recv, "free to be used")
    return CallTiming(launch + waited, launch, waited, clock.name, started_s, ended_s)


def verify_role(role: GroupRole, buffers: Buffers, present: int | None) -> Verification:
    """Compare this rank's result with the expected one.

    A barrier is right if the whole group had arrived when this rank left.
    """
    spec = role.spec
    if present is not None:
        if present == spec.group_size:
            return Verification(ok=True, checked=1)
        miss = Mismatch(0, (), present, spec.group_size)
        return Verification(ok=False, checked=1, wrong=1, mismatches=(miss,))
    if role.op.is_barrier:
        return Verification(ok=True, checked=0)
    if spec.objects:
        return verify_objects(buffers.recv, expected_objects(role.op, role.rank, spec))
    return verify(buffers.recv, expected(role.op, role.rank, spec))
