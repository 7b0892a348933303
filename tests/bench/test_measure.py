"""Measurements on real ranks: shared memory, the common start, rows, and failures."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from select import select

import pytest
from benches import alone, asked, series, world

from distdemo import ops
from distdemo.bench import timing
from distdemo.bench.controller import measure
from distdemo.bench.records import Start
from distdemo.errors import Terminated, UsageError
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Died
from distdemo.ops.all_reduce import AllReduce

SHARED = "/dev/shm"  # noqa: S108 - only listed

# ----------------------------------------------------------------------- shared memory, the start


def share(rank):
    """Return what a rank reads from shared memory, and its kind of start with and without it."""
    found = timing.shared_page(rank, "here", 64)
    assert found is not None
    found.words[rank.rank] = 10 * (rank.rank + 1)
    rank.barrier("written")
    held = list(found.words[:3])
    start, seen = timing.common_start(rank), []
    for turn in range(200):
        if rank.rank == turn % 3:
            found.words[3] = turn
        start.align()
        seen.append(found.words[3])
        start.align()
    found.close()
    left = [name for name in os.listdir(SHARED) if "distdemo" in name]
    if rank.rank == 1:
        timing._open_page = lambda *_: None
    none = timing.shared_page(rank, "lacking", 64)
    ways = start.way, timing.CommonStart(rank, none).way
    return held, left, seen, none, ways


def test_ranks_share_unnamed_memory_and_start_together():
    ways = (Start.PAGE, Start.BARRIER)
    for found in run_world(world(3), share).values:
        assert found == ([10, 20, 30], [], list(range(200)), None, ways)


def test_memory_of_other_processes_is_not_opened(tmp_path):
    """A store may contain any path."""
    token = bytes(range(timing.TOKEN))
    file = tmp_path / "alike"
    file.write_bytes(bytes(64) + token)
    for address in ("", "/etc/passwd 00", "/proc/self/fd/999 00", "/proc/self/fd/0"):
        assert timing._open_page(address, 64) is None
    assert timing._open_page(f"{file} {token.hex()}", 64) is None
    assert timing._open_page(f"/proc/self/root{file} {token.hex()}", 64) is None


# -------------------------------------------------------------------------------- measurements


def test_every_size_is_verified_and_timed_until_it_is_steady():
    wanted = asked(
        series(sizes_bytes=(8, 400, 65_536)),
        series("barrier"),
        iters=None,
        budget_s=0.05,
        precision=1000.0,
        skew=True,
    )
    watched, ordered = [], []

    def start(*args, on_message, order, resume, **_):
        """Check that plain data tells another node what to run."""
        target, (spec, measurements) = resume(order)
        ordered.append((target.__name__, spec, measurements) == ("bench", *args[2]))
        return run_world(*args, on_message=on_message)

    report = measure(wanted, [world()], start, lambda *update: watched.append(update))
    assert report.ok, report.world
    first, barrier = report.series
    assert [row.size_bytes for row in first.rows] == [8, 400, 65_536]
    assert all(len(row.times_s) == 6 and row.steady for row in first.rows)
    assert all(row.checked == 2 * row.elements and row.wrong == 0 for row in first.rows)
    assert all(row.interval_s is not None for row in first.rows)
    assert (barrier.rows[0].checked > 0, barrier.rows[0].wrong) == (True, 0)
    assert len(first.skew) == 2
    (setup,) = report.setups
    assert (setup.launches, setup.limits) == (7, ())
    assert setup.alignment is not None
    assert (setup.alignment.way, bool(setup.alignment.spread_s)) == (Start.PAGE, True)
    assert setup.harness is not None
    assert setup.harness.inside_s > 0
    assert all(0 <= done <= 100 and wrong == 0 for done, wrong, _ in watched)
    assert ordered == [True] * 7


def test_every_operation_is_measured_the_requested_number_of_times():
    every = [
        series(name, 3, sizes_bytes=(0,) if op.is_barrier else (120,))
        for name, op in ops.REGISTRY.items()
    ]
    report = measure(asked(*every, iters=5, launches=2, check_every=2), [world(3)], alone)
    assert report.ok, report.world
    for each in report.series:
        assert [list(map(len, row.times_s)) for row in each.rows] == [[3, 2]], each.spec.op
        assert each.rows[0].checked, each.spec.op
    (found,) = (each.rows[0] for each in report.series if each.spec.op == "all_reduce")
    # Verified once before timing, twice within three iterations, once within two.
    assert found.checked == (1 + 2 + 1) * 3 * found.elements


def test_overlap_is_reported_and_groups_run_at_once_while_non_members_wait():
    halves = series(world_size=4, groups=((0, 1), (2, 3)), sizes_bytes=(8,))
    some = series(async_op=True, world_size=4, groups=((0, 2),), sizes_bytes=(8,))
    wanted = asked(halves, some, iters=1, overlap=True, skew=True)
    report = measure(wanted, [world(4)], alone)
    assert report.ok, report.world
    assert [row.checked for row in report.rows] == [8, 4]
    assert report.rows[0].overlap is None
    overlap = report.rows[1].overlap
    assert overlap is not None
    assert min(overlap.alone_s, overlap.compute_s) > 0
    assert 0 <= overlap.hidden_share <= 1


def test_long_measurements_send_heartbeats(monkeypatch):
    monkeypatch.setattr(timing, "HEARTBEAT_S", 0.0)
    messages = []

    def start(*args, on_message, **_):
        def keep(rank, message):
            messages.append(message)
            on_message(rank, message)

        return run_world(*args, on_message=keep)

    wanted = asked(series(sizes_bytes=(8,)), iters=8, launches=1, warmup=5)
    assert measure(wanted, [world()], start).rows[0].iterations == 8
    assert messages.count(None) > 2 * (5 + 8)


def test_one_world_measures_in_blocks_whose_iterations_the_ranks_agree_on():
    report = measure(asked(iters=None, budget_s=0.2), [world()], alone, once=True)
    assert report.ok
    assert report.setups[0].launches == 1
    assert "blocks of one world" in report.notes[0]
    for row in report.rows:
        assert len(row.times_s) == 8
        assert all(3 <= len(launch) <= 500 for launch in row.times_s)


# ------------------------------------------------------------------------------------- failures


def _rank():
    import torch.distributed as dist

    return dist.get_rank()


class Corrupt(AllReduce):
    """An all_reduce that is off by one on rank 1, in the last element, at the larger size."""

    def bind(self, buffers, spec, group, *, async_op):
        call = super().bind(buffers, spec, group, async_op=async_op)

        def wrong():
            call()
            if spec.numel > 10 and _rank() == 1:
                buffers.recv[0][-1] += 1

        return wrong


class Slow(AllReduce):
    """An all_reduce after which rank 1 sleeps for longer than any scheduler delay."""

    def bind(self, buffers, spec, group, *, async_op):
        call, rank = super().bind(buffers, spec, group, async_op=async_op), _rank()

        def late():
            call()
            if rank == 1:
                select([], [], [], 0.02)

        return late


class Fatal(AllReduce):
    """An all_reduce that kills rank 1 at the larger size, in worlds in which it is armed."""

    armed = False

    def bind(self, buffers, spec, group, *, async_op):
        call = super().bind(buffers, spec, group, async_op=async_op)
        if spec.numel > 10 and _rank() == 1 and self.armed:
            os.kill(os.getpid(), signal.SIGKILL)
        return call


def test_wrong_elements_are_counted_and_the_measurement_fails(monkeypatch):
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", Corrupt())
    report = measure(asked(iters=1), [world()], alone)
    assert not report.ok
    assert [row.wrong for row in report.rows] == [0, 1]


def test_a_late_rank_is_named(monkeypatch):
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", Slow())
    wanted = asked(series(ranks=3, sizes_bytes=(8,)), iters=16, launches=1, skew=True)
    found = measure(wanted, [world(3)], alone).series[0].skew
    assert [each.is_late for each in found] == [False, True, False]
    assert found[1].late_s > 5e-4
    assert found[0].waited_s > 5e-4


def test_a_rank_that_dies_keeps_finished_rows_and_stops_no_other_backend(monkeypatch):
    fatal = Fatal()
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", fatal)

    def start(it, target, args, on_message, **_):
        fatal.armed = args[1][0].launch > 0
        return run_world(replace(it, backend="gloo"), target, args, on_message=on_message)

    wanted = asked(series(), series("broadcast", backend="mpi"), iters=1)
    report = measure(wanted, [world(), world(backend="mpi")], start)
    assert not report.ok
    assert report.world is not None
    assert isinstance(report.world.outcomes[1], Died)
    assert "4,096 B" in report.world.outcomes[1].phase.name
    assert [[row.size_bytes for row in each.rows] for each in report.series] == [[8], [8, 4096]]
    assert report.series[0].error == "A world failed: 1 of 2 sizes are missing."


def test_rows_are_kept_if_no_further_world_can_be_started():
    def start(it, *args, on_message, **_):
        if it.backend == "mpi":
            raise UsageError("There is no MPI.", "It is not installed.", "Install it.")
        return run_world(it, *args, on_message=on_message)

    other = series(backend="mpi")
    worlds = [world(), world(backend="mpi")]
    report = measure(asked(series(), other, iters=1), worlds, start)
    assert [len(each.rows) for each in report.series] == [2, 0]
    assert report.series[1].error.startswith("There is no MPI. It is not installed.")
    with pytest.raises(UsageError):
        measure(asked(other, iters=1), worlds, start)


def test_a_signal_or_the_deadline_keeps_measured_rows():
    for kind in (KeyboardInterrupt, Terminated):
        worlds = iter(range(3))

        def interrupted(*args, on_message, worlds=worlds, kind=kind, **_):
            if next(worlds) == 2:
                raise kind
            return run_world(*args, on_message=on_message)

        report = measure(asked(), [world()], interrupted)
        assert (report.interrupted, report.ok) == (True, False)
        assert [row.iterations for row in report.rows] == [1, 1]
    report = measure(asked(), [replace(world(), deadline=1e-9)], alone)
    assert not report.ok
    assert report.series[0].error.startswith("The time limit of 1e-09 s was reached: 2 of 2")
