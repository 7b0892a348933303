"""Measurements on real ranks: shared memory, the common start, rows, and failures."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from time import monotonic

import pytest
import torch
import torch.distributed as dist
from benches import alone, asked, series, world

from distdemo import ops, schedules
from distdemo.bench import rank as ranks
from distdemo.bench import records, stream, sweep
from distdemo.bench.rank import Launches
from distdemo.bench.sweep import measure
from distdemo.encoding import decode, encode
from distdemo.errors import UsageError
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Died, Verdict, WorldReport
from distdemo.measure import timing
from distdemo.ops import values
from distdemo.ops.all_reduce import AllReduce

pytestmark = pytest.mark.processes
SHARED = "/dev/shm"  # only listed

# ----------------------------------------------------------------------- shared memory, the start


def share(rank):
    """Return what a rank reads from shared memory after 200 common starts, with it and without."""
    words = timing.shared_words(rank, "here", 8)
    assert words is not None
    files = [name for name in os.listdir(SHARED) if "distdemo" in name]
    seen = []
    start = timing.CommonStart(rank)
    for turn in range(200):
        if rank.rank == turn % 3:
            words[3] = turn
        start.align()
        seen.append(words[3])
        start.align()
    if rank.rank == 1:
        timing.open_memory = lambda *_: None
    lacking = timing.shared_words(rank, "lacking", 8)
    return files, seen, lacking


def test_ranks_share_unnamed_memory_and_start_together():
    for result in run_world(world(3), share).values:
        assert result == ([], list(range(200)), None)


def test_memory_of_other_processes_is_not_opened(tmp_path):
    """A store may contain any text."""
    token = bytes(range(timing.TOKEN)).hex()
    file = tmp_path / "alike"
    file.write_bytes(bytes(64) + bytes.fromhex(token))
    with file.open("r+b") as opened:
        here = f"/proc/{os.getpid()}/fd/{opened.fileno()}"
        assert timing.open_memory(f"{here} {token}", 64) is not None
        gone = f"/proc/{os.getpid()}/fd/999"
        for where in ("", "0 0", f"{here} {'00' * timing.TOKEN}", f"{gone} {token}"):
            assert timing.open_memory(where, 64) is None
        for path in (f"/proc/self/root{file}", f"/proc/{os.getpid()}/fd/../..{file}", str(file)):
            assert timing.open_memory(f"{path} {token}", 64) is None


# -------------------------------------------------------------------------------- measurements


def test_every_size_is_verified_and_timed_until_it_is_steady(monkeypatch):
    monkeypatch.setattr(stream, "SECONDS", 0.05)
    monkeypatch.setattr(ranks, "MOST_ITERS", 5)
    monkeypatch.setattr(records, "STEADY_SHARE", 1000.0)
    wanted = asked(
        series(sizes_bytes=(8, 400, 65_536)), series("barrier"), iters=None, budget_s=1000.0
    )
    watched = []
    orders = []

    def start(world, target, args, *, on_message):
        """Check that the launches of a later world can be sent to another node."""
        assert decode(Launches, encode(args[1], decodable=True)) == args[1]
        orders.append(args[1][0].sizes)
        return run_world(world, target, args, on_message=on_message)

    report = measure(wanted, [world()], start, lambda *update: watched.append(update))
    assert report.ok, report.world
    assert orders[0] == ((0, 0), (1, 0), (0, 1), (0, 2))
    assert (orders[1], orders[2]) == (orders[0], orders[0][::-1])
    first, barrier = report.series
    assert [row.size_bytes for row in first.rows] == [8, 400, 65_536]
    for row in report.rows:
        assert [3 <= len(launch) <= 5 for launch in row.times_s] == [True] * 6
        assert row.steady
    assert all((row.checked, row.wrong) == (2 * row.elements, 0) for row in first.rows)
    assert [row.size_bytes for row in barrier.rows] == [0]
    (setup,) = report.setups
    assert (setup.launches, setup.limit is None) == (7, False)
    assert 0 <= (setup.taken_cores or 0) <= 2
    assert {done for done, _, _ in watched} == set(range(7))


def test_every_operation_is_right_in_place_or_not_and_measured_as_often_as_requested(monkeypatch):
    monkeypatch.setattr(values, "PERIODS", (997, 991))  # shorter than a piece
    monkeypatch.setattr(records, "LAUNCHES_OF_FIXED", 2)
    every = [
        series(name, 3, in_place=place, sizes_bytes=sizes)
        for name, op in ops.REGISTRY.items()
        for sizes in [(0,) if op.is_barrier else (36_012,)]
        for place in (False, True)
    ]
    algorithms = [
        series(one.op, 3, algorithm=one.name, sizes_bytes=(36_012,)) for one in schedules.REGISTRY
    ]
    report = measure(asked(*every, *algorithms, iters=5), [world(3)], alone)
    assert report.ok, report.world
    for result in report.series:
        (row,) = result.rows
        assert list(map(len, row.times_s)) == [3, 2], result.spec
        if not result.spec.operation.is_barrier:
            assert (row.checked > 0, row.wrong) == (True, 0), result.spec


def test_one_world_measures_in_blocks_and_sends_heartbeats(monkeypatch):
    monkeypatch.setattr(timing, "HEARTBEAT_S", 0.0)
    messages = []

    def start(*args, on_message, **_):
        def keep(rank, message):
            messages.append(message)
            on_message(rank, message)

        return run_world(*args, on_message=keep)

    report = measure(asked(iters=12), [world()], start, one_world=True)
    assert (report.ok, report.setups[0].launches) == (True, 1)
    assert "blocks of one world" in report.notes[0]
    assert [list(map(len, row.times_s)) for row in report.rows] == [[2] * 6] * 2
    assert messages.count(None) > sum(row.iterations for row in report.rows)


def test_a_spent_budget_leaves_out_the_largest_sizes_of_every_series():
    wanted = asked(series(), series("broadcast"), iters=None, budget_s=1e-9)
    report = measure(wanted, [world()], alone)
    assert report.ok
    assert [[row.size_bytes for row in result.rows] for result in report.series] == [[8], [8]]
    assert {(row.iterations, row.checked > 0) for row in report.rows} == {(3, True)}
    assert report.setups[0].launches == 1


# ------------------------------------------------------------------------------------- failures


class Altered(AllReduce):
    """An all_reduce after which rank 1 does something to its result.

    Args:
        act: Function of the result.
        least: Smallest number of elements at which it does.
    """

    def __init__(self, act, least=0):
        self.act = act
        self.least = least

    def bind(self, buffers, spec, group, *, async_op):
        call = super().bind(buffers, spec, group, async_op=async_op)

        def altered():
            call()
            if spec.numel >= self.least and dist.get_rank() == 1:
                self.act(buffers.recv[0])

        return altered


def test_wrong_elements_are_counted_and_the_measurement_fails(monkeypatch):
    corrupt = Altered(lambda tensor: tensor[-1].add_(1), least=10)
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", corrupt)
    monkeypatch.setattr(torch, "add", lambda own, message, *, out: out.copy_(own))
    report = measure(asked(series(), series(algorithm="ring")), [world()], alone)
    own, ring = report.series
    assert not report.ok
    assert [row.wrong for row in own.rows] == [0, 1]
    assert all(row.wrong for row in ring.rows)


def test_a_rank_that_dies_keeps_finished_rows_and_stops_no_other_backend(monkeypatch):
    fatal = Altered(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setitem(ops.REGISTRY, "all_reduce", fatal)

    def start(it, target, args, on_message, **_):
        fatal.least = 10 if args[1][0].number else 1 << 30
        return run_world(replace(it, backend="gloo"), target, args, on_message=on_message)

    wanted = asked(series(), series("broadcast", backend="mpi"))
    report = measure(wanted, [world(), world(backend="mpi")], start)
    assert not report.ok
    assert report.world is not None
    assert isinstance(report.world.outcomes[1], Died)
    assert "4,096 B" in report.world.outcomes[1].phase.name
    assert [[row.size_bytes for row in one.rows] for one in report.series] == [[8], [8, 4096]]
    assert report.series[0].error == "A world failed. 1 of 2 sizes are missing."


def test_a_backend_whose_ranks_cannot_be_started_keeps_the_rows_of_the_one_before():
    def start(it, target, args, on_message, **_):
        if it.backend == "mpi":
            raise UsageError("Rank 1 could not be started.", "No memory.")
        return run_world(it, target, args, on_message=on_message)

    worlds = [world(), world(backend="mpi")]
    report = measure(asked(series(), series(backend="mpi"), iters=2), worlds, start)
    assert not report.ok
    assert [len(one.rows) for one in report.series] == [2, 0]
    assert report.series[1].error.startswith("Rank 1 could not be started. No memory. 2 of 2")
    with pytest.raises(UsageError):
        measure(asked(series(backend="mpi")), worlds[1:], start)


def test_the_deadline_is_named_in_every_series_that_it_cut():
    report = measure(asked(), [replace(world(), deadline=1e-9)], alone)
    assert not report.ok
    assert report.series[0].error.startswith("The time limit of 1e-09 s was reached. 2 of 2")


def test_a_world_that_advances_until_the_deadline_has_not_failed():
    def start(it, target, args, on_message, **_):
        on_message(0, None)
        end = monotonic() + it.deadline
        while monotonic() <= end:
            pass
        return WorldReport(it, (), Verdict("Timed out.", "", ""), it.deadline, "fork", "")

    report = measure(asked(), [replace(world(), deadline=0.2)], start)
    assert (report.world, report.ok) == (None, False)
    assert report.series[0].error.startswith("The time limit of 0.2 s was reached. 2 of 2")


def test_a_deadline_after_which_iterations_are_missing(monkeypatch):
    now = [0.0]

    def start(it, target, args, on_message, **_):
        now[0] += 1000.0
        return run_world(it, target, args, on_message=on_message)

    monkeypatch.setattr(sweep, "monotonic", lambda: now[0])
    report = measure(asked(iters=6), [replace(world(), deadline=3500.0)], start)
    assert (len(report.rows), report.ok) == (2, False)
    reason = "The time limit of 3500 s was reached. Not all iterations were timed."
    assert report.series[0].error == reason
