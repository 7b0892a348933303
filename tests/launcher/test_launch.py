"""``distdemo.launch`` with functions that succeed and functions that fail, on real ranks.

Forked from the test's own process unless a test says otherwise: that process has imported torch
through distdemo and computed nothing before.
"""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import LOOPBACK, tcp_addresses
from torch._C._distributed_c10d import FileStore

import distdemo
from distdemo.errors import UsageError
from distdemo.launcher.records import Raised, Stopped, TimedOut
from distdemo.launcher.verdict import report_of
from distdemo.testing import RanksError, run_ranks

TIMEOUT_S = 4.0  # of worlds that hang, including their start

pytestmark = [pytest.mark.usefixtures("no_child_left"), pytest.mark.processes]
launch = partial(distdemo.launch, start_method="fork", sanitize=False)


def failing(fn, *, world_size=3, timeout=60.0, **options):
    """Return the error of a launch that must fail; unless it times out, at the fault."""
    with pytest.raises(distdemo.WorldError) as caught:
        launch(fn, world_size=world_size, timeout=timeout, **options)
    late = [isinstance(outcome, TimedOut) for outcome in caught.value.report.outcomes]
    assert any(late) == (timeout == TIMEOUT_S)
    return caught.value


def forever():
    """Never return, and sleep."""
    threading.Event().wait()


# -------------------------------------------------------------------------------------- success


def test_a_function_is_called_when_all_ranks_are_connected():
    """A rank that fails at once would break the connections that slower ranks still make."""

    def arrived():
        store: Any = dist.distributed_c10d._get_default_store()
        while not isinstance(store, FileStore):
            store = store.underlying_store
        return store.add("barrier/all ranks are connected/arrived", 0)

    assert launch(arrived, world_size=3) == [3, 3, 3]


@pytest.mark.parametrize(("lazy", "interface"), [("0", ""), ("1", "eth0")])
def test_ranks_talk_on_loopback_alone_and_their_values_come_back(
    lazy, interface, monkeypatch, tmp_path
):
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", lazy)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))  # no temporary directory is needed
    if interface:  # the user's, for worlds that span machines
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    offset = 7

    def work(rank, size, greeting):
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total)
        addresses = tcp_addresses(os.getpid())
        dist.barrier()
        if rank == 1:  # the other ranks are done but still reachable
            torch.randn(400, 400) @ torch.randn(400, 400)
        dist.barrier()
        large = torch.full((1_500_000,), float(rank + offset))
        numbers = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
        assert numbers == [str(rank), str(rank), str(size)]  # as `distdemo run` sets them
        return f"{greeting} {rank} of {size}", total, set(addresses), large

    came = launch(work, args=("rank",), world_size=3)
    assert [said for said, *_ in came] == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]
    assert [total.item() for _, total, *_ in came] == [6.0] * 3
    for *_, addresses, large in came:
        assert addresses
        assert addresses <= LOOPBACK
        assert len(large) == 1_500_000  # more than any pipe holds
    assert [large[-1].item() for *_, large in came] == [7.0, 8.0, 9.0]
    assert tcp_addresses(os.getpid()) == []


def test_worlds_leave_no_descriptor_no_process_and_the_handlers_as_they_were():
    def fail():
        raise ValueError("x")

    launch(dist.get_rank, world_size=2)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert launch(dist.get_rank, world_size=2) == [0, 1]
    error = failing(fail, world_size=2)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own pickle
    assert (copy.what, copy.rank) == (error.what, error.rank)


# --------------------------------------------------------------------------------- the sanitizer


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_calls_are_compared_unless_that_is_turned_off():
    def differ(rank):
        op = dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM
        dist.all_reduce(torch.ones(1), op)

    def poll(rank):
        handle = dist.all_reduce(torch.ones(1), async_op=True)
        dist.barrier()
        del handle

    error = failing(differ, world_size=2, sanitize=True)
    assert error.what.endswith("the ranks pass different ReduceOps.")
    assert "test_launch.py" in error.why
    launch(differ, world_size=2)
    default = inspect.signature(distdemo.launch).parameters
    assert default["sanitize"].default is True
    with pytest.warns(UserWarning, match="a call is never waited for") as warned:
        launch(poll, world_size=2, sanitize=True)
    # Python 3.12 and later also warn about the fork: a worker of pytest-xdist has two threads.
    assert warned.pop(UserWarning).filename == __file__
    error = failing(poll, world_size=2, sanitize=True, strict=True)
    assert "a call is never waited for" in error.what
    with pytest.warns(UserWarning, match="a call is never waited for") as warned:
        run_ranks(poll, 2)
    assert warned.pop(UserWarning).filename == __file__
    with pytest.raises(RanksError, match="a call is never waited for"):
        run_ranks(poll, 2, strict=True)
    with pytest.raises(UsageError, match="can't be used with sanitize=False"):
        launch(poll, strict=True, sanitize=False)


def test_ranks_are_stopped_when_none_uses_the_processor_and_not_before():
    with pytest.raises(
        distdemo.WorldError, match="For 1 s no rank wrote anything or used the processor"
    ) as caught:
        launch(forever, world_size=2, stall=1.0)
    assert caught.value.hint.endswith("raise the stall limit.")

    def wait_for_child(rank):
        code = "import os\nwhile sum(os.times()[:2]) < 2.5: pass"
        if rank == 0:
            subprocess.run([sys.executable, "-c", code], check=True)
        dist.barrier()
        return rank

    assert launch(wait_for_child, world_size=2, stall=1.5) == [0, 1]


# -------------------------------------------------------------------------------------- failures


def test_a_rank_that_raises_is_named_and_those_that_lost_it_are_consequences():
    """The other ranks may notice it anywhere."""

    def fail(rank):
        dist.barrier()
        if rank == 2:
            raise ValueError("a bad batch")
        while True:
            dist.all_reduce(torch.ones(1000), async_op=True).wait()

    error = failing(fail)
    assert error.rank == 2
    assert error.report.verdict.consequences == (0, 1)
    assert error.what == "Rank 2 raised ValueError: a bad batch"
    assert 'raise ValueError("a bad batch")' in error.traceback
    assert "rank.py" not in error.traceback
    *others, cause = error.report.outcomes
    assert isinstance(cause, Raised)
    assert not cause.consequence
    assert all(isinstance(o, Stopped) or (isinstance(o, Raised) and o.consequence) for o in others)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    forever()


def test_a_rank_killed_in_the_op_whose_child_holds_its_pipes():
    def op(rank):
        dist.barrier()
        if rank == 2:
            subprocess.Popen(["sleep", "20"])
            threading.Timer(0.05, die).start()
        while True:
            dist.all_reduce(torch.ones(100_000))

    error = failing(op)
    assert error.rank == 2
    assert "killed by SIGKILL" in error.what
    assert error.report.outcomes[2].signal == signal.SIGKILL
    assert error.report.verdict.consequences == (0, 1)


def test_a_rank_that_never_arrives_is_named_with_those_that_wait():
    def late(rank):
        if rank == 1:
            forever()
        dist.all_reduce(torch.ones(1))

    error = failing(late, timeout=TIMEOUT_S)
    assert error.rank == 1
    assert error.report.verdict.consequences == (0, 2)
    assert "rank 1 is not" in error.what
    assert "in forever" in error.why
    waiting = error.report.outcomes[0]
    assert isinstance(waiting, TimedOut)
    assert waiting.where
    assert waiting.where.collective == "all_reduce"


def test_stopped_ranks_and_those_that_ignore_sigterm_do_not_hold_up_the_end():
    def stubborn(rank):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank == 0:
            raise RuntimeError("over")
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        forever()

    assert failing(stubborn).rank == 0


def test_ranks_that_miss_a_monitored_barrier_are_named_by_their_numbers_in_the_world():
    def barrier(rank):
        group = dist.new_group([0, 2])
        if rank == 0:
            dist.monitored_barrier(group, timedelta(seconds=0.3), wait_all_ranks=True)
        forever()

    error = failing(barrier)
    assert (error.report.verdict.ranks, error.report.verdict.consequences) == ((2,), (0,))
    assert error.what.startswith("Rank 2 never reached the barrier: ")
    assert "monitored_barrier" in error.traceback


# ------------------------------------------------------------------------------------- signals


def test_ctrl_c_reaches_the_program_with_where_ranks_were_once_they_are_gone():
    def wait(rank, pid):
        dist.barrier()
        if rank == 0:
            os.kill(pid, signal.SIGINT)
        if rank < 2:
            dist.recv(torch.ones(1), 2)
        forever()

    with pytest.raises(KeyboardInterrupt) as caught:
        launch(wait, args=(os.getpid(),), world_size=3)
    report = report_of(caught.value)
    assert report
    assert report.interrupted_by == signal.SIGINT
    for outcome in report.outcomes:
        assert isinstance(outcome, TimedOut)
        assert outcome.where
        assert outcome.where.source_line.function in ("wait", "forever")
    assert report.verdict
    assert report.verdict.what == "The run was interrupted."
    assert "test_launch.py:" in report.verdict.why


def test_a_signal_whose_handler_returns_ends_in_an_error_of_its_own():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))

    def ask(pid):
        os.kill(pid, signal.SIGTERM)
        forever()

    try:
        with pytest.raises(distdemo.WorldInterrupted):
            launch(ask, args=(os.getpid(),), world_size=2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
