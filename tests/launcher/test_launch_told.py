"""Values that ranks send while they run, callbacks that end the world, and progress."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import torch
import torch.distributed as dist

from distdemo.launcher.local import run_world
from distdemo.launcher.records import Stopped, WorldSpec

pytestmark = [pytest.mark.usefixtures("no_child_left"), pytest.mark.processes]


def world(size=3, **options):
    return WorldSpec(size, deadline=60.0, start_method="fork", **options)


class Listener:
    """Callback that keeps the values it receives and returns a given answer."""

    def __init__(self, answer=lambda rank, value: None):
        self.heard = []
        self.answer = answer

    def __call__(self, rank, value):
        self.heard.append((rank, value))
        return self.answer(rank, value)

    def of(self, rank):
        return [value for teller, value in self.heard if teller == rank]


def test_values_arrive_in_order_while_the_rank_continues():
    def send(rank):
        for number in range(200):
            rank.send(number)
        dist.barrier()
        rank.report_phase("half way")
        threads = [
            threading.Thread(target=rank.send, args=(bytes([number]) * 300_000,))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return rank.rank

    listener = Listener()
    report = run_world(world(2), send, on_message=listener)
    assert report.values == [0, 1]
    assert [(o.phase.step, o.phase.name) for o in report.outcomes] == [(2, "half way")] * 2
    for rank in range(2):
        told = listener.of(rank)
        assert told[:200] == list(range(200))
        assert sorted(told[200:]) == [bytes([n]) * 300_000 for n in range(4)]
    assert run_world(world(1), lambda rank: rank.send(rank.rank)).ok  # without a callback


class Unreadable:
    """Object whose unpickling raises `SystemExit`."""

    def __reduce__(self):
        return sys.exit, (7,)


def test_a_value_that_can_not_be_pickled_or_unpickled_is_an_error_of_its_rank():
    def send(rank):
        dist.barrier()
        if rank.rank == 0:
            rank.send(threading.Lock())
        if rank.rank == 1:
            rank.send(Unreadable())
        return Unreadable() if rank.rank == 2 else threading.Lock()

    listener = Listener()
    report = run_world(world(4), send, on_message=listener)
    assert report.verdict
    assert set(report.verdict.ranks) == {0, 1, 2, 3}
    texts = [f"{raised.type} {raised.message} {raised.traceback}" for raised in report.outcomes]  # type: ignore[attr-defined]
    assert "rank.send(threading.Lock())" in texts[0]
    assert "SystemExit the value that it sent can't be unpickled" in texts[1]
    assert "SystemExit the value that it returned can't be unpickled" in texts[2]
    assert "the value that it returned can't be sent back" in texts[3]
    assert listener.heard == []


def test_a_listener_ends_a_world_wherever_its_ranks_wait_and_hears_no_more():
    def wait(rank):
        if rank.rank == 1:
            for number in range(50):
                rank.send(number)
            threading.Event().wait()
        if rank.rank == 0:
            dist.all_reduce(torch.ones(1))
        rank.barrier("never")

    listener = Listener(lambda rank, value: value == 7)
    report = run_world(world(), wait, on_message=listener)
    assert listener.of(1) == list(range(8))
    assert all(isinstance(outcome, Stopped) for outcome in report.outcomes)
    assert report.verdict
    assert report.verdict.what == "The run was ended early."


def test_a_listener_that_raises_is_heard_once_all_ranks_are_gone():
    def send(rank):
        rank.send("x")
        threading.Event().wait()

    def fail(rank, value):
        raise LookupError("what the listener raised")

    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(LookupError, match="what the listener raised"):
        run_world(world(2), send, on_message=fail)
    assert sorted(os.listdir("/proc/self/fd")) == before


# -------------------------------------------------------------------------------------- progress
