"""The demo: run one op once, on every rank, and keep what each held before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.demo.attendance import attend, dawdle, verify_attendance
from distdemo.demo.clock import clock_of
from distdemo.demo.holding import keep, keep_objects
from distdemo.demo.holdings import Attendance, Holding, RankRecord, Step, Verification
from distdemo.demo.part import Groups, Part, inference, part_of
from distdemo.demo.reports import OpReport
from distdemo.demo.verify import verify, verify_objects
from distdemo.demo.witness import Timing, witness
from distdemo.launcher.records import Returned, WorldReport
from distdemo.ops.buffers import expected, expected_objects, make_buffers
from distdemo.ops.contract import Op, Undefined
from distdemo.versions import versions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch.distributed import ProcessGroup

    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Buffers
    from distdemo.ops.spec import OpSpec


def demo(rank: Rank, op: Op, specs: tuple[OpSpec, ...]) -> RankRecord:
    """Collective: run the op on this rank, verify it, and say what was held before and after.

    Args:
        rank: this rank of the world.
        op: what to run.
        specs: one a group that runs it; all at once.
    """
    part = part_of(rank.rank, op, specs)
    group = Groups(rank.backend).of(specs, part)
    with inference(part.spec):
        record = _record(rank, part, group)
    inside = None if part.group is None else part.rank
    return replace(record, group_rank=inside, group=part.group or 0)


def report(op: Op, specs: tuple[OpSpec, ...], world: WorldReport) -> OpReport:
    """Everything that the views of a demo are drawn from."""
    records = [outcome.value for outcome in world.outcomes if isinstance(outcome, Returned)]
    first = specs[0]
    return OpReport(
        first,
        world,
        op.traffic(first),
        _on_one_clock(records, world.hosts),
        (*op.notes(first), *_note_on_clocks(records, world.hosts)),
        versions() | backends.versions_of(world.world),
        op.form(first).name,
        op.form(first).calls,
        specs,
    )


def run_part(
    rank: Rank, part: Part, buffers: Buffers, group: ProcessGroup | None
) -> tuple[Timing, Attendance | None]:
    """Collective: the call itself, timed; non-blocking ones are watched step by step."""
    op, spec = part.op, part.spec
    if spec.objects and spec.group_size == 1:  # nobody to send a pickle to
        buffers.recv[:] = buffers.send
        return Timing(0.0), None
    if not op.takes_part(part.rank, spec) and not spec.async_op:
        return Timing(0.0), None
    if op.meets:
        dawdle(rank, part)
    where = f", {part.place}" if part.place else ""
    rank.reach(f"entered {op.name}{where}")
    timing, attendance = _timed(rank, part, buffers, group)
    rank.reach(f"left {op.name}{where}")
    return timing, attendance


def verify_part(part: Part, buffers: Buffers, attendance: Attendance | None) -> Verification:
    """The comparison of what this rank got with what it should have got."""
    op, rank, spec = part.op, part.rank, part.spec
    if op.meets:
        return verify_attendance(attendance, spec)
    if spec.objects:
        return verify_objects(buffers.recv, expected_objects(op, rank, spec))
    return verify(buffers.recv, expected(op, rank, spec))


# ------------------------------------------------------------------------------------- the parts


def _record(rank: Rank, part: Part, group: ProcessGroup | None) -> RankRecord:
    op, spec = part.op, part.spec
    buffers = make_buffers(op, part.rank, spec, rank.device)
    own = [rank.rank] * len(buffers.send)
    before = _keep(buffers.send, own, spec, listed=op.list_before)
    timing, attendance = run_part(rank, part, buffers, group)
    verification = verify_part(part, buffers, attendance)
    after = _after(part, buffers.recv)
    return RankRecord(
        rank=rank.rank,
        takes_part=op.takes_part(part.rank, spec),
        before=before,
        after=after,
        expected=after if _is_exact(verification) else _after(part, _wanted(part)),
        verification=verification,
        seconds=timing.seconds,
        launch_seconds=timing.launch_seconds,
        wait_seconds=timing.wait_seconds,
        events=timing.events,
        steps=_steps(buffers),
        attendance=attendance,
        clock=timing.clock,
    )


def _timed(
    rank: Rank, part: Part, buffers: Buffers, group: ProcessGroup | None
) -> tuple[Timing, Attendance | None]:
    op, spec = part.op, part.spec

    def call() -> Timing:
        if spec.async_op:
            return witness(rank, part, buffers, group)
        clock = clock_of(rank.device, op, spec)
        started = clock.mark()
        op.run(buffers, spec, group, async_op=False)
        seconds = clock.between(started, clock.mark())
        rank.synchronize()
        return Timing(seconds, clock=clock.name)

    return attend(rank, part, call) if op.meets else (call(), None)


def _wanted(part: Part) -> list[Any]:
    """What this rank should hold; as much as an undefined result needs of it: nothing."""
    op, rank, spec = part.op, part.rank, part.spec
    if spec.objects:
        return expected_objects(op, rank, spec)
    return [each.tensor for each in expected(op, rank, spec) or ()]


def _after(part: Part, held: Sequence[Any]) -> Holding:
    op, spec = part.op, part.spec
    result = op.result(part.rank, spec)
    if isinstance(result, Undefined):
        return Holding(undefined=True)
    sources = [None if each.reduced else spec.member(each.ranks[0]) for each in result]
    return _keep(held, sources, spec, listed=op.is_listed(spec))


def _keep(
    held: Sequence[Any], sources: Sequence[int | None], spec: OpSpec, *, listed: bool
) -> Holding:
    if spec.objects:
        return keep_objects(held, sources, listed=listed)
    joined = listed and spec.is_joined
    return keep(held, sources, listed=listed and not joined, joined=joined)


def _steps(buffers: Buffers) -> tuple[Step, ...]:
    return tuple(
        Step(name, keep(tensors, [None] * len(tensors), listed=True), sent)
        for name, tensors, sent in buffers.trail
    )


def _is_exact(verification: Verification) -> bool:
    return verification.ok and verification.tolerance == 0


def _on_one_clock(records: list[RankRecord], hosts: Sequence[str]) -> tuple[RankRecord, ...]:
    """The records with their moments counted from the first of the world.

    Where there are several hosts: from the first of each, as their clocks can't be compared.
    """
    if not hosts:
        return tuple(_counted(record, _first(records)) for record in records)
    homes = {record.rank: hosts[record.rank] for record in records}
    began = {
        host: _first([record for record in records if homes[record.rank] == host]) for host in hosts
    }
    return tuple(_counted(record, began[homes[record.rank]]) for record in records)


def _first(records: Sequence[RankRecord]) -> float:
    """The first moment that any of them took note of."""
    events = [event.at for record in records for event in record.events]
    arrivals = [record.attendance.arrived for record in records if record.attendance]
    return min([*events, *arrivals], default=0.0)


def _note_on_clocks(records: Sequence[RankRecord], hosts: Sequence[str]) -> tuple[str, ...]:
    if hosts and any(record.events or record.attendance for record in records):
        return ("Moments are counted on each host from its own first one.",)
    return ()


def _counted(record: RankRecord, first: float) -> RankRecord:
    events = tuple(replace(event, at=event.at - first) for event in record.events)
    came = record.attendance
    if came is not None:
        came = replace(came, arrived=came.arrived - first, left=came.left - first)
    return replace(record, events=events, attendance=came)
