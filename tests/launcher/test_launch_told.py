"""What ranks tell the launcher while they run, and a listener that ends the world."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from helpers import children

from distdemo.launcher.local import run_world
from distdemo.launcher.records import Raised, Stopped, TimedOut, UserProgram, WorldSpec
from distdemo.launcher.verdict import report_of

ENDS_WITHIN = 2.0  # seconds from the cause until every rank is gone


def world(size=3, **options):
    return WorldSpec(size, deadline=20.0, start_method="fork", **options)


class Listener:
    """Keeps what it hears; answers as it is told to."""

    def __init__(self, answer=lambda rank, value: None):
        self.heard = []
        self.answer = answer

    def __call__(self, rank, value):
        self.heard.append((rank, value))
        return self.answer(rank, value)

    def of(self, rank):
        return [value for teller, value in self.heard if teller == rank]


def test_values_arrive_in_the_order_in_which_each_rank_told_them():
    def count(rank):
        for number in range(200):
            rank.tell(number)

    listener = Listener()
    report = run_world(world(), count, hear=listener)
    assert report.ok
    assert [listener.of(rank) for rank in range(3)] == [list(range(200))] * 3


def test_values_larger_than_any_pipe_arrive_while_the_rank_goes_on():
    def tell(rank):
        rank.tell(torch.full((1_000_000,), float(rank.rank)))
        dist.barrier()
        rank.tell("after")
        return rank.rank

    listener = Listener()
    report = run_world(world(), tell, hear=listener)
    assert report.values == [0, 1, 2]
    for rank in range(3):
        large, after = listener.of(rank)
        assert (float(large.sum()), after) == (rank * 1e6, "after")


def test_values_of_several_threads_of_a_rank_do_not_mix():
    def tell(rank):
        threads = [
            threading.Thread(target=rank.tell, args=(bytes([number]) * 300_000,))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    listener = Listener()
    assert run_world(world(2), tell, hear=listener).ok
    for rank in range(2):
        assert sorted(listener.of(rank)) == [bytes([n]) * 300_000 for n in range(4)]


def test_telling_leaves_the_phases_as_they_are():
    def tell(rank):
        rank.reach("half way")
        rank.tell("something")

    report = run_world(world(2), tell, hear=Listener())
    assert [(o.phase.step, o.phase.name) for o in report.outcomes] == [(2, "half way")] * 2


def test_values_that_nobody_listens_to_are_let_go():
    assert run_world(world(2), lambda rank: rank.tell(rank.rank)).ok


def test_a_value_that_can_not_be_told_raises_in_its_rank():
    def tell(rank):
        rank.tell(threading.Lock())

    report = run_world(world(1), tell, hear=Listener())
    (outcome,) = report.outcomes
    assert isinstance(outcome, Raised)
    assert "rank.tell(threading.Lock())" in outcome.traceback


class Unreadable:
    """Pickles well, and raises when it is read."""

    def __reduce__(self):
        return int, ("no number",)


def test_a_value_that_can_not_be_read_is_an_error_of_its_rank():
    def tell(rank):
        if rank.rank == 1:
            rank.tell(Unreadable())
        dist.barrier()

    listener = Listener()
    report = run_world(world(), tell, hear=listener)
    assert report.verdict
    assert report.verdict.ranks == (1,)
    assert "told can't be read back" in report.verdict.what
    assert listener.heard == []


# ----------------------------------------------------------------------------- ended by a listener


@pytest.mark.parametrize("waits", ["all_reduce", "meet", "python"])
def test_a_listener_ends_a_world_whose_ranks_wait(waits):
    def wait(rank):
        if rank.rank == 1:
            rank.tell("enough")
            threading.Event().wait()
        {
            "all_reduce": lambda: dist.all_reduce(torch.ones(1)),
            "meet": lambda: rank.meet("never"),
            "python": threading.Event().wait,
        }[waits]()

    began = time.monotonic()
    listener = Listener(lambda rank, value: value == "enough")
    report = run_world(world(), wait, hear=listener)
    assert time.monotonic() - began < ENDS_WITHIN
    assert listener.heard == [(1, "enough")]
    assert all(isinstance(outcome, Stopped) for outcome in report.outcomes)
    assert report.verdict
    assert report.verdict.what == "The run was ended early."
    assert (report.verdict.ranks, report.verdict.consequences) == ((), ())
    assert children(os.getpid()) == []


def test_nothing_is_heard_after_the_end():
    def tell(rank):
        for number in range(50):
            rank.tell(number)
        threading.Event().wait()

    listener = Listener(lambda rank, value: value == 7)
    run_world(world(1), tell, hear=listener)
    assert listener.of(0) == list(range(8))


def test_a_listener_that_raises_is_heard_once_all_ranks_are_gone():
    def tell(rank):
        rank.tell("x")
        dist.barrier()
        threading.Event().wait()

    def fail(rank, value):
        raise LookupError("what the listener raised")

    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(LookupError, match="what the listener raised"):
        run_world(world(), tell, hear=fail)
    assert children(os.getpid()) == []
    assert sorted(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------------------------ meet and count


def test_a_subgroup_meets_under_a_name_of_its_own():
    def meet(rank):
        if rank.rank in (0, 2):
            rank.meet("evens", among=2)
        rank.meet("all")
        return True

    assert run_world(world(4), meet).values == [True] * 4


def test_a_counter_proves_that_everybody_has_arrived():
    def arrive(rank):
        before = rank.count("arrived", 1)
        rank.meet("there")
        return before, rank.count("arrived")

    values = run_world(world(4), arrive).values
    assert sorted(before for before, _ in values) == [1, 2, 3, 4]
    assert [after for _, after in values] == [4] * 4


# ------------------------------------------------------------------------------- where ranks were


def test_an_interrupted_world_says_where_its_ranks_were():
    def wait(rank):
        dist.barrier()
        if rank.rank == 0:
            os.kill(os.getppid(), signal.SIGINT)
        if rank.rank < 2:
            dist.recv(torch.ones(1), 2)
        threading.Event().wait()

    with pytest.raises(KeyboardInterrupt) as caught:
        run_world(world(), wait)
    report = report_of(caught.value)
    assert report
    assert report.interrupted_by == signal.SIGINT
    for outcome in report.outcomes:
        assert isinstance(outcome, TimedOut)
        assert outcome.where
        assert "in wait" in outcome.where.place
    assert report.verdict
    assert report.verdict.what == "The run was interrupted."
    assert "in wait" in report.verdict.why
    assert children(os.getpid()) == []


def test_ranks_of_a_user_program_that_wait_in_recv_stall():
    """gloo's threads poll meanwhile: that is no work."""
    waits = world(2, stall=1.0, capture=True, user_program=UserProgram())
    report = run_world(waits, lambda rank: dist.recv(torch.ones(1), 1 - rank.rank))
    assert report.verdict
    assert "no rank wrote anything or used the processor" in report.verdict.what
    assert report.seconds < 20
