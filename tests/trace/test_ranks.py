"""Schedules on real ranks: right results, byte counts, and detection of wrong results."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
import torch.distributed as dist
from forked import in_a_child
from running import Numbered
from traces import spec_of

from distdemo import ops, schedules
from distdemo.backends.registry import run_prepared
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Returned, Verdict, WorldReport, WorldSpec
from distdemo.ops.buffers import expected, held_before
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.ops.verify import verify
from distdemo.schedules.count import count
from distdemo.schedules.run import Runner
from distdemo.schedules.schedule import Schedule, ScheduleError
from distdemo.schedules.support import check_arithmetic
from distdemo.trace.rank import trace
from distdemo.trace.records import TraceReport, TraceSpec
from distdemo.trace.report import make_report

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

pytestmark = pytest.mark.processes
REDUCE_OPS = ("sum", "max", "avg", "product", "premul_sum")


def world(n: int, **options: Any) -> WorldSpec:
    return WorldSpec(n, start_method="fork", deadline=90, lazy=False, **options)


def schedule_of(spec: TraceSpec) -> Schedule:
    return schedules.schedule(spec.op, spec.algorithm, spec.chunks)


# ------------------------------------------------------------------------------ results and counts


def cases(n: int, payloads: Sequence[int]) -> Iterator[TraceSpec]:
    """Yield every algorithm with these payloads; reduce ops and roots alternate."""
    for turn, algorithm in enumerate(schedules.REGISTRY):
        for index, elements in enumerate(payloads):
            reduce_op = REDUCE_OPS[(turn + index + n) % len(REDUCE_OPS)]
            spec = spec_of(algorithm.op, n, elements, reduce_op, (turn + index) % n)
            yield TraceSpec(spec, algorithm.name, chunks=4 if index else None)


def run_each(rank: Rank, specs: Sequence[TraceSpec]) -> list[Any]:
    """Run each on the first ranks; return wrong and checked elements, and bytes. Collective."""
    seen = {"isend": 0, "irecv": 0}

    def tapped(name: str) -> Callable[..., Any]:
        call = getattr(dist, name)

        def pass_on(tensor: Any, *rest: Any, **named: Any) -> Any:
            seen[name] += tensor.nbytes
            return call(tensor, *rest, **named)

        return pass_on

    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in seen:
            patch.setattr(dist, name, tapped(name))
        for spec in specs:
            if rank.rank >= spec.op.group_size:
                found.append(None)
                continue
            runner = Runner(rank.rank, schedule_of(spec), spec.op, rank.device)
            runner.fill(held_before(ops.REGISTRY[spec.op.op], rank.rank, spec.op))
            for _ in range(2 if spec.op.numel == 1 else 1):
                runner.reset()
                seen.update(isend=0, irecv=0)
                runner.run()
            check = verify(runner.result(), expected(ops.REGISTRY[spec.op.op], rank.rank, spec.op))
            moved = (seen["isend"], seen["irecv"])
            found.append((check.wrong, check.checked, moved, runner.sent_bytes))
    return found


def assert_all_right(specs: Sequence[TraceSpec], done: WorldReport) -> None:
    assert done.ok, done.verdict
    for spec, *all_ranks in zip(specs, *done.values, strict=True):
        ranks = all_ranks[: spec.op.group_size]
        _, sent, received = count(schedule_of(spec), DTYPES[spec.op.dtype].itemsize)
        assert [wrong for wrong, *_ in ranks] == [0] * len(ranks), spec
        assert [bytes_ for _, _, bytes_, _ in ranks] == list(zip(sent, received, strict=True)), spec
        assert [handed for *_, handed in ranks] == list(sent), spec
        assert sum(checked for _, checked, *_ in ranks) or not spec.op.numel, spec


def test_every_algorithm_is_right_and_moves_the_counted_bytes() -> None:
    """One world of five, using its first n ranks; includes large messages and user data."""
    values = ((True, True), (True, False), (True, True))
    specs = [
        *cases(5, (1, 6)),
        *cases(4, (3,)),
        *cases(3, (0, 1000)),
        *cases(2, (3,)),
        *cases(1, (2,)),
        TraceSpec(spec_of("all_reduce", 2, 1 << 20), "doubling"),  # 4 MiB both ways at once
        TraceSpec(spec_of("all_reduce", 3, 1 << 18), "naive-ring"),
        TraceSpec(spec_of("all_gather", 3, 2, dtype="bool", values=values), "bruck"),
        TraceSpec(OpSpec("all_reduce", 3, shape=(2, 3), reduce_op="min", seed=7), "ring"),
        TraceSpec(OpSpec("broadcast", 3, shape=(), root=2), "chain"),
    ]
    assert_all_right(specs, run_world(world(5), run_each, (specs,)))


def test_every_accepted_dtype_and_reduce_op_works() -> None:
    """One algorithm packs and reduces, one copies."""
    specs = []
    for dtype in DTYPES:
        specs.append(TraceSpec(spec_of("all_to_all", 3, 3, dtype=dtype), "bruck"))
        for reduction in REDUCTIONS:
            spec = spec_of("reduce_scatter", 3, 3, reduction, dtype=dtype)
            try:
                check_arithmetic(spec)
            except UsageError:
                continue
            specs.append(TraceSpec(spec, "halving"))
    assert len(specs) > 80
    assert_all_right(specs, run_world(world(3), run_each, (specs,)))


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_every_algorithm_is_right_over_mpi() -> None:
    specs = [*cases(3, (7,)), TraceSpec(spec_of("all_reduce", 3, 1 << 18), "doubling")]

    def work() -> None:
        assert_all_right(specs, run_prepared(world(3, backend="mpi"), run_each, (specs,)))

    in_a_child(work)


def test_sending_a_chunk_that_is_not_held_is_rejected_before_the_run() -> None:
    tree = schedules.find("broadcast", "tree")
    backwards = replace(tree, rounds=lambda *sizes: reversed(list(tree.rounds(*sizes))))

    with pytest.raises(ScheduleError, match="rank 2 sends chunk 0, which it doesn't hold"):
        Runner(2, Schedule.of(backwards, 4, 4), spec_of("broadcast", 4, 4), "cpu")


# ------------------------------------------------------------------------------------- the report

RING = TraceSpec(spec_of("all_reduce", 4, 4), "ring")


def trace_each(rank: Rank, specs: Sequence[TraceSpec]) -> list[Any]:
    """Run one trace after the other. Collective."""
    return [trace(cast("Rank", Numbered(rank, number)), spec) for number, spec in enumerate(specs)]


@cache
def runs() -> dict[str, tuple[TraceSpec, WorldReport]]:
    """Return runs of four ranks in one world, by name."""
    specs = {
        "small": RING,
        "avg": TraceSpec(spec_of("reduce", 4, 6, "avg", root=2), "tree"),
        "premul": TraceSpec(spec_of("all_reduce", 4, 2, "premul_sum"), "naive"),
        "moved": TraceSpec(spec_of("scatter", 4, 2, root=1), "tree"),
    }
    done = run_world(world(4), trace_each, (tuple(specs.values()),))
    assert done.ok, done.verdict
    outcomes = [each for each in done.outcomes if isinstance(each, Returned)]
    found = {}
    for number, (name, spec) in enumerate(specs.items()):
        own = tuple(replace(each, value=each.value[number]) for each in outcomes)
        found[name] = (spec, replace(done, outcomes=own))
    return found


@cache
def reports() -> dict[str, TraceReport]:
    return {name: make_report(*run) for name, run in runs().items()}


def test_the_report_has_the_state_after_every_round() -> None:
    found = reports()["small"]
    assert found.ok
    assert found.handed_bytes == found.sent_bytes == (24,) * 4
    assert all(each.same for each in found.checks)
    states = list(found.states())
    numbers = [[[c.values[0] for c in held.values()] for held in state] for state in states]
    assert numbers[0] == [[10 * rank + index for index in range(4)] for rank in range(4)]
    assert numbers[-1] == [[60, 64, 68, 72]] * 4
    rank_2 = states[3][2]
    assert [cell.chunk for cell in rank_2.values() if cell.complete] == [3]
    assert (rank_2[3].ranks, rank_2[3].values) == ((0, 1, 2, 3), (72.0,))


def test_moments_are_in_order_and_start_with_the_first_rank() -> None:
    rounds = reports()["small"].rounds
    assert min(moment.began_s for moment in rounds[0].moments) == 0
    for rank in range(4):
        moments = [each.moments[rank] for each in rounds]
        for m in moments:
            assert m.began_s < m.posted_s < m.arrived_s < m.ended_s
        assert all(a.ended_s <= b.began_s for a, b in pairwise(moments))
    for each in reports()["moved"].rounds:  # a rank without a message is not busy
        busy = {end for t in each.transfers for end in (t.src, t.dst)}
        assert [m.ended_s > m.began_s for m in each.moments] == [r in busy for r in range(4)]


def test_passed_on_chunks_are_gone_and_values_are_scaled() -> None:
    *_, moved = reports()["moved"].states()
    assert [{c: cell.values[0] for c, cell in held.items()} for held in moved] == [
        {rank: 10 * rank} for rank in range(4)
    ]
    *_, divided = reports()["avg"].states()
    assert divided[2][0].values == (15.0, 16.0, 17.0, 18.0)
    assert reports()["premul"].start[3][0].values == (60.0, 62.0)
    assert reports()["avg"].ok
    assert reports()["premul"].ok


def lose_an_addend(rank: Rank, spec: TraceSpec) -> Any:
    """Trace a run in which rank 1 adds nothing to what it receives. Collective."""
    with pytest.MonkeyPatch.context() as patch:
        if rank.rank == 1:
            patch.setattr(torch, "add", lambda held, message, *, out: out.copy_(held))
        return trace(rank, spec)


def test_a_wrong_result_is_reported_with_rank_and_chunk() -> None:
    done = run_world(world(4), lose_an_addend, (RING,))
    assert done.ok, done.verdict
    report = make_report(RING, done)
    assert not report.ok
    assert [verification.ok for verification in report.verifications] == [False] * 4
    for wrong in report.wrong:
        assert (wrong.element, wrong.expected) == (0, (60.0, 64.0, 68.0, 72.0)[wrong.chunk])
        assert wrong.got != wrong.expected
    assert {wrong.rank for wrong in report.wrong} == {0, 1, 2, 3}


def test_the_report_of_a_failed_world_has_no_rounds() -> None:
    spec, done = runs()["small"]
    verdict = Verdict("Rank 1 died.", "It was killed.", "Look at its memory.", (1,))
    found = make_report(spec, replace(done, verdict=verdict))
    assert not found.ok
    assert (found.rounds, found.start, found.counts.rounds) == ((), (), 6)
