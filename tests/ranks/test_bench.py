from __future__ import annotations

import os
import signal
from dataclasses import replace
from select import select

import pytest
from benches import series, spec, world

from distdemo import ops
from distdemo.bench import align, page
from distdemo.bench.conductor import measure, order_of, resume
from distdemo.bench.plan import Plan, Visit
from distdemo.errors import Terminated, UsageError
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Died, WorldSpec
from distdemo.ops.all_reduce import AllReduce

SHARED = "/dev/shm"  # noqa: S108 - only looked into

# ------------------------------------------------------------------------------- shared memory


def share(rank):
    found = page.shared_page(rank, "here", 64)
    if found is None:
        return None
    found.words[rank.rank] = 10 * (rank.rank + 1)
    rank.meet("written")
    held = list(found.words[:3])
    found.close()
    return held, [name for name in os.listdir(SHARED) if "distdemo" in name]


def test_all_ranks_of_a_machine_see_one_memory_that_has_no_name():
    report = run_world(WorldSpec(3), share)
    assert report.values == [([10, 20, 30], [])] * 3


def share_unless_blind(rank):
    """Rank 1 lives, as it were, in a container of its own."""
    if rank.rank == 1:
        page._open = lambda *_: None
    return page.shared_page(rank, "here", 64), align.aligner(rank).way


def test_if_one_rank_has_no_part_in_it_none_has():
    report = run_world(WorldSpec(3), share_unless_blind)
    assert report.values == [(None, "barrier")] * 3


@pytest.mark.parametrize(
    "address", ["", "/etc/passwd 00", "/proc/self/fd/999 00", "/proc/self/fd/0"]
)
def test_memory_that_is_not_ours_is_not_taken(address):
    assert page._open(address, 64) is None


def meet_often(rank):
    start = align.aligner(rank)
    found = page.shared_page(rank, "beside", 8)
    assert found is not None
    seen = []
    for turn in range(200):
        if rank.rank == turn % 3:
            found.words[0] = turn
        start.meet()
        seen.append(found.words[0])
        start.meet()
    return start.way, seen


def test_nobody_starts_before_all_have_come():
    report = run_world(WorldSpec(3), meet_often)
    assert report.values == [("shared memory", list(range(200)))] * 3


# -------------------------------------------------------------------------------- measurements


def test_every_size_is_verified_and_timed_as_often_as_was_asked_for():
    asked = spec(series(sizes=(8, 400, 65_536)), series("barrier", sizes=(0,)), skew=True, iters=12)
    heard = []
    report = measure(asked, run_world, lambda *told: heard.append(told))
    assert report.ok, report.failure
    first, barrier = report.series
    assert [row.size for row in first.rows] == [8, 400, 65_536]
    assert all(row.iterations == 12 and len(row.times) == 6 for row in first.rows)
    assert all(row.checked == 2 * row.elements and row.wrong == 0 for row in first.rows)
    assert all(row.interval is not None for row in first.rows)
    assert barrier.rows[0].checked > 0
    assert barrier.rows[0].wrong == 0
    assert len(first.skew) == 2
    setup = report.setups["gloo"]
    assert setup.launches == 7
    assert setup.alignment is not None
    assert setup.alignment.way == "shared memory"
    assert setup.alignment.spread
    assert setup.harness is not None
    assert setup.harness.inside > 0
    assert setup.limits == ()
    assert heard
    assert 0 <= heard[-1][1].done <= 1


def test_steady_sizes_are_left_alone_and_the_budget_ends_it():
    asked = spec(iters=None, budget=0.05, precision=1000.0)
    report = measure(asked, run_world)
    assert report.setups["gloo"].launches == 7
    assert all(row.steady for row in report.series[0].rows)
    assert report.unsteady == ()


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_every_operation_can_be_measured(name):
    settings: dict[str, object] = {"root": 0} if "root" in ops.REGISTRY[name].takes else {}
    if "pattern" in ops.REGISTRY[name].takes:
        settings = {"pattern": "ring"}
    sizes = (0,) if ops.REGISTRY[name].meets else (120,)
    asked = spec(series(name, 3, sizes, **settings), iters=2, launches=1)
    report = measure(asked, run_world)
    assert report.ok, report.failure
    assert report.series[0].rows[0].iterations == 2
    assert report.series[0].rows[0].checked


def test_a_call_that_gives_a_handle_is_waited_for_and_what_computing_hides_is_told():
    asked = spec(series(async_op=True), iters=1, overlap=True)
    report = measure(asked, run_world)
    assert report.ok, report.failure
    for row in report.series[0].rows:
        assert row.overlap is not None
        assert row.overlap.alone > 0
        assert row.overlap.compute > 0
        assert 0 <= row.overlap.hidden <= 1


def test_verification_is_repeated_as_often_as_was_asked_for():
    once = measure(spec(iters=1), run_world).series[0].rows[0]
    often = measure(spec(iters=6, launches=1, check_every=2), run_world).series[0].rows[0]
    assert often.iterations == 6
    assert often.checked == 4 * once.checked


def test_long_measurements_tell_that_they_go_on(monkeypatch):
    monkeypatch.setattr(align, "SILENT", 0.0)
    heard = []

    def start(*args, hear):
        def listen(rank, told):
            heard.append(told)
            hear(rank, told)

        return run_world(*args, hear=listen)

    report = measure(spec(series(sizes=(8,)), iters=8, launches=1, warmup=5), start)
    assert report.series[0].rows[0].iterations == 8
    assert heard.count(None) > 2 * (5 + 8)


def test_one_world_can_do_it_all_in_blocks():
    report = measure(spec(iters=16), run_world, once=True)
    assert report.ok
    assert report.setups["gloo"].launches == 1
    assert all(len(row.times) == 6 and row.iterations == 16 for row in report.series[0].rows)
    assert "blocks of one world" in report.notes[0]


def test_in_one_world_the_ranks_agree_on_as_many_iterations_as_fit():
    report = measure(spec(iters=None, budget=0.2), run_world, once=True)
    assert report.ok
    for row in report.series[0].rows:
        assert len(row.times) == 8
        assert all(3 <= len(launch) <= 500 for launch in row.times)


def test_groups_run_at_once_and_ranks_outside_wait():
    halves = series(ranks=2)
    base = halves.points[0].specs[0]
    pair = tuple(replace(base, members=members) for members in ((0, 1), (2, 3)))
    some = (replace(base, members=(0, 2)),)
    points = (replace(halves.points[0], specs=pair), replace(halves.points[0], specs=some))
    asked = spec(replace(halves, world=world(4), points=points), iters=1)
    report = measure(asked, run_world)
    assert report.ok, report.failure
    assert [row.checked for row in report.series[0].rows] == [8, 4]


# -------------------------------------------------------------------------------- what goes wrong


class Corrupt(AllReduce):
    """An all_reduce that is off by one on rank 1, in the last element."""

    def bind(self, buffers, spec, group, *, async_op):
        call = super().bind(buffers, spec, group, async_op=async_op)

        def wrong():
            call()
            if spec.numel > 10 and _rank() == 1:
                buffers.recv[0][-1] += 1

        return wrong


def _rank():
    import torch.distributed as dist

    return dist.get_rank()


def test_wrong_elements_are_counted_and_the_measurement_fails(monkeypatch):
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", Corrupt())
    report = measure(spec(iters=1), run_world)
    assert not report.ok
    assert [row.wrong for row in report.series[0].rows] == [0, 1]
    assert report.wrong == 1


class Dawdling(AllReduce):
    """An all_reduce after which rank 1 is away: for longer than a scheduler lets anybody wait."""

    def bind(self, buffers, spec, group, *, async_op):
        call, rank = super().bind(buffers, spec, group, async_op=async_op), _rank()

        def late():
            call()
            if rank == 1:
                select([], [], [], 0.02)

        return late


def test_the_rank_that_comes_late_is_named(monkeypatch):
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", Dawdling())
    report = measure(spec(series(ranks=3, sizes=(8,)), iters=20, skew=True), run_world)
    found = report.series[0].skew
    assert [each.named for each in found] == [False, True, False]
    assert found[1].late > 5e-4
    assert found[0].waited > 5e-4


class Fatal(AllReduce):
    """An all_reduce that kills rank 1 at the larger size, once it times."""

    def bind(self, buffers, spec, group, *, async_op):
        call = super().bind(buffers, spec, group, async_op=async_op)
        if spec.numel > 10 and _rank() == 1 and float(buffers.send[0][0]) == 1.0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call


def test_a_rank_that_dies_leaves_the_rows_that_were_finished(monkeypatch):
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", Fatal())
    report = measure(spec(), run_world)
    assert not report.ok
    assert report.failure is not None
    assert isinstance(report.failure.outcomes[1], Died)
    assert "4,096 B" in report.failure.outcomes[1].phase.name
    assert [row.size for row in report.series[0].rows] == [8]
    assert report.series[0].error == "A world failed before 1 of 2 sizes were measured."


def test_a_backend_that_fails_does_not_stop_the_next(monkeypatch):
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", Fatal())
    first, second = series(), series("broadcast", root=0)
    asked = spec(first, replace(second, world=world(backend="mpi")), iters=1)

    def start(it, target, args, *, hear):
        return run_world(replace(it, backend="gloo"), target, args, hear=hear)

    report = measure(asked, start)
    assert [len(each.rows) for each in report.series] == [1, 2]
    assert report.failure is not None
    assert not report.ok


def test_what_was_measured_is_kept_if_no_further_world_can_be_started():
    def start(it, target, args, *, hear):
        if it.backend == "mpi":
            raise UsageError("There is no MPI.", "It is not installed.", "Install it.")
        return run_world(it, target, args, hear=hear)

    other = replace(series(), world=world(backend="mpi"))
    report = measure(spec(series(), other, iters=1), start)
    assert [len(each.rows) for each in report.series] == [2, 0]
    assert report.series[1].error.startswith("There is no MPI. It is not installed.")
    with pytest.raises(UsageError):
        measure(spec(other, iters=1), start)


def test_overlap_is_measured_though_a_rank_is_in_no_group():
    base = series(async_op=True)
    points = tuple(
        replace(each, specs=(replace(each.specs[0], members=(0, 2)),)) for each in base.points
    )
    asked = spec(replace(base, world=world(3), points=points), iters=1, overlap=True, skew=True)
    report = measure(asked, run_world)
    assert report.ok, report.failure
    assert all(row.overlap for row in report.series[0].rows)


@pytest.mark.parametrize("signal_kind", [KeyboardInterrupt, Terminated])
def test_ctrl_c_leaves_what_was_measured(signal_kind):
    worlds = []

    def interrupted(*args, **how):
        worlds.append(args)
        if len(worlds) == 3:
            raise signal_kind
        return run_world(*args, **how)

    report = measure(spec(), interrupted)
    assert report.interrupted
    assert not report.ok
    assert [row.iterations for row in report.series[0].rows] == [1, 1]


def test_another_site_learns_from_plain_numbers_what_to_run():
    asked = spec()
    plan = Plan((Visit(0, 1, 2, 3, 4, verify=True),), limits=True)
    target, args = resume(asked, order_of((asked, plan)))
    assert target.__name__ == "bench"
    assert args == (asked, plan)
