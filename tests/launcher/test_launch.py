"""``distdemo.launch`` with functions that behave and functions that don't, on real ranks.

Forked from the test's own process unless a test says otherwise: that process has imported torch
through distdemo and computed nothing before.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import threading
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from helpers import LOOPBACK, children, tcp_addresses, wait_until

import distdemo
from distdemo.launcher.records import Died, Raised, Returned, Stopped, TimedOut

ENDS_WITHIN = 2.0  # seconds from the cause until every rank is gone
SOON = 1.0  # seconds after which worlds that hang are given up

launch = partial(distdemo.launch, start_method="fork")


def failing(fn, *, world_size=3, timeout=20.0, **options):
    """The error of a launch that has to fail, and the seconds that it took."""
    began = time.monotonic()
    with pytest.raises(distdemo.WorldError) as caught:
        launch(fn, world_size=world_size, timeout=timeout, **options)
    taken = time.monotonic() - began
    assert children(os.getpid()) == []
    return caught.value, taken


def forever():
    """Never return, without burning the processor."""
    threading.Event().wait()


# ------------------------------------------------------------------------------- what goes well


def test_the_values_come_back_in_the_order_of_the_ranks():
    assert launch(dist.get_rank, world_size=5) == [0, 1, 2, 3, 4]


def test_a_lambda_and_a_local_function_work_under_fork():
    offset = 7
    assert launch(lambda: dist.get_rank() + offset, world_size=2) == [7, 8]


def test_rank_and_size_are_given_to_a_function_in_the_tutorials_shape():
    def run(rank, size, greeting):
        return f"{greeting} {rank} of {size}"

    assert launch(run, args=("rank",), world_size=2) == ["rank 0 of 2", "rank 1 of 2"]


def test_a_collective_over_the_default_group():
    def total(rank):
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor)
        return tensor

    assert [tensor.item() for tensor in launch(total)] == [10.0] * 4


def test_one_rank_is_a_world():
    assert launch(dist.get_world_size, world_size=1) == [1]


def test_results_larger_than_any_pipe_do_not_block():
    def large(rank):
        return torch.full((1_500_000,), float(rank))

    results = launch(large, world_size=3)
    assert [float(result.sum()) for result in results] == [0.0, 1.5e6, 3e6]


def test_a_rank_that_is_done_waits_so_that_slower_ones_can_still_talk_to_it():
    def unequal(rank):
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        if rank == 1:
            torch.randn(400, 400) @ torch.randn(400, 400)
        dist.barrier() if rank < 2 else None
        return tensor.item()

    assert launch(lambda: unequal(dist.get_rank()), world_size=2) == [2.0, 2.0]


def test_sys_exit_without_a_status_is_a_return():
    def leave():
        raise SystemExit

    assert launch(leave, world_size=2) == [None, None]


def test_a_launch_in_a_thread_works():
    results = []
    thread = threading.Thread(target=lambda: results.extend(launch(dist.get_rank, world_size=2)))
    thread.start()
    thread.join(30)
    assert results == [0, 1]


def test_ten_worlds_one_after_the_other_leave_no_descriptor_and_no_process():
    launch(dist.get_rank, world_size=2)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(10):
        assert launch(dist.get_rank, world_size=2) == [0, 1]
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert children(os.getpid()) == []


@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize("interface", ["", "eth0"], ids=["unset", "set by the user"])
def test_all_sockets_of_ranks_are_on_loopback(monkeypatch, lazy, interface):
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", lazy)
    if interface:
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)

    def addresses():
        dist.all_reduce(torch.ones(1))
        mine = tcp_addresses(os.getpid())
        dist.barrier()
        return mine

    for found in launch(addresses, world_size=4):
        assert found
        assert set(found) <= LOOPBACK
    assert tcp_addresses(os.getpid()) == []


def test_no_temporary_directory_is_needed(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert launch(dist.get_rank, world_size=2) == [0, 1]


# ------------------------------------------------------------------------------ what goes wrong


def test_a_rank_that_raises_is_named_and_its_traceback_carried():
    def fail(rank):
        if rank == 1:
            raise ValueError("a bad batch")
        dist.barrier()

    error, taken = failing(fail)
    assert error.rank == 1
    assert "Rank 1 raised ValueError: a bad batch" in error.what
    assert 'raise ValueError("a bad batch")' in error.traceback
    assert "launchers" not in error.traceback
    assert taken < ENDS_WITHIN
    outcome = error.report.outcomes[1]
    assert isinstance(outcome, Raised)
    assert not outcome.consequence


def test_ranks_that_lost_their_peer_are_consequences():
    def fail(rank):
        dist.barrier()
        if rank == 2:
            raise KeyError("weights")
        for _ in range(1000):
            dist.all_reduce(torch.ones(1000))

    error, taken = failing(fail)
    assert error.rank == 2
    assert error.report.verdict.consequences == (0, 1)
    assert taken < ENDS_WITHIN
    others = [error.report.outcomes[rank] for rank in (0, 1)]
    assert all(isinstance(o, Stopped) or (isinstance(o, Raised) and o.consequence) for o in others)


def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)
    forever()


def test_a_rank_killed_before_it_joins():
    forks = 0
    armed = True

    def count():
        nonlocal forks
        forks += 1

    def third_dies():
        if armed and forks == 3:
            die()

    os.register_at_fork(before=count, after_in_child=third_dies)
    try:
        error, taken = failing(dist.barrier, world_size=4)
    finally:
        armed = False
    assert error.rank == 2
    assert "SIGKILL" in error.what
    assert error.report.outcomes[2].phase.name == "not started"
    assert taken < ENDS_WITHIN


def test_a_rank_killed_while_it_joins(monkeypatch):
    join = dist.init_process_group

    def joins_or_dies(backend, **settings):
        if settings["rank"] == 1:
            die()
        return join(backend, **settings)

    monkeypatch.setattr(dist, "init_process_group", joins_or_dies)
    error, taken = failing(dist.barrier)
    assert error.rank == 1
    assert error.report.outcomes[1].phase.name == "started"
    assert taken < ENDS_WITHIN


def test_a_rank_killed_in_the_op():
    def op(rank):
        dist.barrier()
        if rank == 2:
            threading.Timer(0.05, die).start()
        while True:
            dist.all_reduce(torch.ones(100_000))

    error, taken = failing(op)
    assert error.rank == 2
    assert "killed by SIGKILL" in error.what
    assert error.report.outcomes[2].signal == signal.SIGKILL
    assert error.report.verdict.consequences == (0, 1)
    assert taken < ENDS_WITHIN


def test_a_rank_killed_after_the_op():
    def op(rank):
        dist.all_reduce(torch.ones(1))
        if rank == 0:
            die()

    error, taken = failing(op)
    assert error.rank == 0
    assert taken < ENDS_WITHIN


def test_a_rank_that_the_backend_aborts_is_named(capfd):
    def mismatch(rank):
        faulthandler.disable()  # the test runner's own, which would write over its report
        dtype = torch.float64 if rank == 0 else torch.float32
        dist.all_reduce(torch.ones(3, dtype=dtype))

    error, taken = failing(mismatch, world_size=2)
    assert error.rank is not None
    assert any(isinstance(o, Died) and o.signal == signal.SIGABRT for o in error.report.outcomes)
    assert taken < ENDS_WITHIN
    capfd.readouterr()


@pytest.mark.parametrize("leave", [partial(os._exit, 5), partial(exit, 5)], ids=["_exit", "exit"])
def test_a_rank_that_leaves_with_a_status(leave):
    def go(rank):
        if rank == 1:
            leave()
        dist.barrier()

    error, taken = failing(go)
    assert error.rank == 1
    assert error.report.outcomes[1].exit_code == 5
    assert taken < ENDS_WITHIN


def test_a_rank_that_never_arrives_is_named_with_those_that_wait():
    def late(rank):
        if rank == 1:
            forever()
        dist.all_reduce(torch.ones(1))

    error, taken = failing(late, timeout=SOON)
    assert error.rank == 1
    assert error.report.verdict.consequences == (0, 2)
    assert "rank 1 never arrived" in error.what
    assert "in forever" in error.why
    assert "waiting in all_reduce" in error.why
    assert taken < SOON + ENDS_WITHIN
    waiting = error.report.outcomes[0]
    assert isinstance(waiting, TimedOut)
    assert waiting.where
    assert waiting.where.collective == "all_reduce"


def test_a_rank_that_returns_without_joining_in_is_at_fault():
    def early(rank):
        if rank != 2:
            dist.all_reduce(torch.ones(1))

    error, _ = failing(early, timeout=SOON)
    assert error.rank == 2
    assert isinstance(error.report.outcomes[2], Returned)
    assert "returned without joining in" in error.why


def test_ranks_that_all_wait_for_each_other_have_no_single_culprit():
    def both_send_first(rank):
        other = 1 - rank
        large = torch.ones(4_000_000)
        dist.send(large, other)
        dist.recv(large, other)

    error, taken = failing(both_send_first, world_size=2, timeout=SOON)
    assert error.rank is None
    assert error.report.verdict.consequences == (0, 1)
    assert "wait for each other" in error.what
    assert taken < SOON + ENDS_WITHIN


def test_a_rank_that_ignores_sigterm_is_killed():
    def stubborn(rank):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rank == 0:
            raise RuntimeError("over")
        forever()

    error, taken = failing(stubborn)
    assert error.rank == 0
    assert taken < ENDS_WITHIN


def test_a_stopped_rank_does_not_hold_up_the_end():
    def frozen(rank):
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()

    error, taken = failing(frozen, timeout=SOON)
    assert error.rank == 1
    assert taken < SOON + ENDS_WITHIN


def test_a_value_that_can_not_be_sent_back_is_an_error_of_its_rank():
    def give(rank):
        return threading.Lock() if rank == 1 else None

    error, taken = failing(give, world_size=2)
    assert error.rank == 1
    assert "can't be sent back" in error.what
    assert taken < ENDS_WITHIN


def test_a_process_that_a_rank_started_does_not_hide_its_death():
    def leaves_a_child(rank):
        if rank == 0:
            subprocess.Popen(["sleep", "20"])
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    error, taken = failing(leaves_a_child, world_size=2)
    assert error.rank == 0
    assert taken < ENDS_WITHIN


def test_the_error_survives_pickling():
    import pickle

    def fail():
        raise ValueError("x")

    error, _ = failing(fail, world_size=1)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (copy.what, copy.rank) == (error.what, error.rank)


def test_handlers_and_descriptors_are_as_before_after_a_failure():
    def fail():
        raise ValueError("x")

    failing(fail, world_size=2)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    before = sorted(os.listdir("/proc/self/fd"))
    failing(fail, world_size=2)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_ctrl_c_reaches_the_program_once_all_ranks_are_gone():
    def wait_for_it(pid):
        os.kill(pid, signal.SIGINT)
        forever()

    with pytest.raises(KeyboardInterrupt):
        launch(wait_for_it, args=(os.getpid(),), world_size=2)
    assert children(os.getpid()) == []


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
    assert wait_until(lambda: children(os.getpid()) == [])


def test_a_rank_in_the_wait_of_a_handle_counts_as_waiting():
    def one_sided(rank):
        if rank == 0:
            handle = dist.irecv(torch.ones(1), 1)
            assert handle
            handle.wait()

    error, _ = failing(one_sided, world_size=2, timeout=SOON)
    assert error.rank == 1
    assert "returned without joining in" in error.why
