"""A world that makes no progress is judged long before its timeout, and the right rank blamed."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from helpers import children

from distdemo.launcher.local import run_world
from distdemo.launcher.records import TimedOut, WorldSpec

ENDS_WITHIN = 2.0  # seconds from the cause until every rank is gone
PATIENCE = 0.5


def run(target, *, size=3, **options):
    spec = WorldSpec(size, deadline=30.0, start_method="fork", stall=PATIENCE)
    report = run_world(spec, target, **options)
    assert children(os.getpid()) == []
    return report


def forever():
    threading.Event().wait()


@pytest.mark.parametrize("waits", ["all_reduce", "meet"])
def test_the_rank_that_stalls_is_blamed_and_those_that_wait_for_it_are_not(waits):
    def stall(rank):
        if rank.rank == 1:
            forever()
        dist.all_reduce(torch.ones(1)) if waits == "all_reduce" else rank.meet("there")

    report = run(stall)
    assert report.verdict
    assert report.verdict.what == "No progress for 0.5 s: rank 1 never arrived."
    assert "in forever" in report.verdict.why
    assert f"waiting in {waits}" in report.verdict.why
    assert (report.verdict.ranks, report.verdict.consequences) == ((1,), (0, 2))
    assert all(isinstance(outcome, TimedOut) for outcome in report.outcomes)
    assert report.seconds < PATIENCE + ENDS_WITHIN


def test_a_lone_rank_that_stalls_is_blamed():
    report = run(lambda rank: forever(), size=1)
    assert report.verdict
    assert report.verdict.ranks == (0,)


@pytest.mark.parametrize("sign", ["tell", "reach"])
def test_a_rank_that_shows_progress_has_all_the_time_of_the_timeout(sign):
    def in_step(rank):
        began = torch.tensor([time.monotonic()], dtype=torch.float64)
        dist.broadcast(began, 0)
        more = torch.ones(1)
        while more:
            if rank.rank == 0:
                getattr(rank, sign)("still there")
                threading.Event().wait(PATIENCE / 50)
                more.fill_(time.monotonic() < began.item() + 2 * PATIENCE)
            dist.broadcast(more, 0)
        return True

    assert run(in_step).values == [True] * 3


def test_a_slow_listener_is_not_the_ranks_fault():
    def tell(rank):
        rank.tell("one")
        rank.tell("two")
        return rank.rank

    pause = threading.Event()
    report = run(tell, size=2, hear=lambda rank, value: pause.wait(0.6 * PATIENCE) and None)
    assert report.values == [0, 1]
