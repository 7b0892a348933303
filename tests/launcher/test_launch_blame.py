"""Who is blamed where the words of an error alone would mislead: on real ranks."""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from helpers import children

import distdemo
from distdemo.launcher.records import Died, Raised

ENDS_WITHIN = 2.0  # seconds from the cause until every rank is gone


def failing(fn, *, world_size=3, **options):
    """The error of a launch that has to fail, soon."""
    began = time.monotonic()
    with pytest.raises(distdemo.WorldError) as caught:
        distdemo.launch(fn, world_size=world_size, timeout=20, start_method="fork", **options)
    assert time.monotonic() - began < ENDS_WITHIN
    assert children(os.getpid()) == []
    return caught.value


def forever():
    threading.Event().wait()


# ------------------------------------------------------------------------- the user's own words


@pytest.mark.parametrize(
    "words", ["connection refused", "timed out after 30 s", "connection closed by peer"]
)
def test_an_error_of_the_user_that_sounds_like_the_backend_s_is_a_cause(words):
    def fail(rank):
        if rank == 1:
            raise RuntimeError(f"database: {words}")
        dist.all_reduce(torch.ones(1))

    error = failing(fail)
    assert error.rank == 1
    assert words in error.what
    assert not error.report.outcomes[1].consequence


@pytest.mark.parametrize("how", ["call", "handle"])
def test_a_lost_peer_is_a_consequence_wherever_its_error_comes_out(how):
    def lose(rank):
        dist.barrier()
        if rank == 0:
            raise KeyError("weights")
        while True:
            handle = dist.all_reduce(torch.ones(1000), async_op=how == "handle")
            if handle is not None:
                handle.wait()

    error = failing(lose)
    assert error.rank == 0
    assert error.report.verdict.ranks == (0,)
    raised = [o for o in error.report.outcomes[1:] if isinstance(o, Raised)]
    assert all(outcome.consequence for outcome in raised)


def test_a_lost_peer_caught_and_raised_again_is_still_a_consequence():
    def lose(rank):
        dist.barrier()
        if rank == 0:
            raise KeyError("weights")
        try:
            while True:
                dist.all_reduce(torch.ones(1000))
        except RuntimeError as error:
            error.args = (*error.args, "seen by the user")
            raise

    assert failing(lose).report.verdict.ranks == (0,)


# ------------------------------------------------------------------------------ last words


def test_the_text_given_to_sys_exit_is_kept_and_told():
    def leave(rank):
        if rank == 2:
            sys.exit("no data in /tmp/batches")
        dist.barrier()

    error = failing(leave)
    assert error.rank == 2
    outcome = error.report.outcomes[2]
    assert isinstance(outcome, Died)
    assert (outcome.exit_code, outcome.message) == (1, "no data in /tmp/batches")
    assert "no data in /tmp/batches" in error.why


# -------------------------------------------------------------------------- monitored barriers


def barrier(ranks=None, *, late, wait_all, leaves):
    group = dist.new_group(ranks) if ranks else None
    if dist.get_rank() in late:
        if leaves:
            return
        forever()
    if ranks is None or dist.get_rank() in ranks:
        dist.monitored_barrier(group, timedelta(seconds=0.3), wait_all_ranks=wait_all)


@pytest.mark.parametrize("wait_all", [False, True], ids=["first", "all"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stalls", "returns"])
def test_the_rank_that_misses_a_monitored_barrier_is_blamed(wait_all, leaves):
    error = failing(partial(barrier, late=(2,), wait_all=wait_all, leaves=leaves), world_size=4)
    assert error.what.startswith("Rank 2 never came to the barrier: ")
    assert error.report.verdict.ranks == (2,)
    # A rank may hear of it so late that it was stopped before it could say so.
    assert 0 in error.report.verdict.consequences
    assert set(error.report.verdict.consequences) <= {0, 1, 3}
    assert ("returned without joining in" in error.why) is leaves
    assert "monitored_barrier" in error.traceback


def test_all_ranks_that_miss_a_monitored_barrier_are_blamed_if_it_waits_for_all():
    error = failing(partial(barrier, late=(1, 3), wait_all=True, leaves=False), world_size=4)
    assert error.report.verdict.ranks == (1, 3)
    assert "waited for them" in error.why


def test_ranks_of_a_group_are_named_by_their_numbers_in_the_world():
    error = failing(partial(barrier, [1, 3], late=(3,), wait_all=True, leaves=False), world_size=4)
    assert error.report.verdict.ranks == (3,)
    assert error.report.verdict.consequences == (1,)
    assert error.what.startswith("Rank 3 never came")
