"""Processes that user programs leave behind, processor use, and signals."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from itertools import chain, repeat

import pytest
from forked import in_a_child
from helpers import wait_until

from distdemo.launcher import process_tree
from distdemo.launcher.process_tree import Activity, ProcessTree, processor_seconds
from distdemo.signals import Interrupts


@pytest.mark.processes
@pytest.mark.parametrize("killed", [False, True], ids=["", "its cleaner was killed"])
def test_what_is_in_its_sessions_ends_and_nothing_else(killed):
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as inside,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as outside,
    ):
        tree = ProcessTree()
        tree.add(inside.pid)
        if killed:
            tree._cleanup._process.kill()
        tree.end()
        assert wait_until(lambda: inside.poll() is not None)
        assert inside.returncode == -signal.SIGKILL
        assert outside.poll() is None
        outside.kill()


def used(sessions: set[int]) -> float:
    """Return the processor seconds of these sessions."""
    found = processor_seconds(sessions)
    assert found is not None
    return found


@pytest.mark.processes
def test_a_thread_at_work_is_counted_but_none_of_the_backend():
    """gloo's poll all the time, also while a rank waits in recv."""
    in_a_child(burn_both)


def burn_both():
    """Run in a new session: other tests are using the processor in this one."""
    os.setsid()
    assert used({-1}) == used(set()) == 0
    for name in ("busy", "gloo_tcp_loop"):
        burns(name)


def burns(name):
    begun, go_on = threading.Event(), True

    def burn():
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:  # noqa: PTH123
            comm.write(name)
        begun.set()
        while go_on:
            pass

    thread = threading.Thread(target=burn)
    sessions = {os.getsid(0)}
    thread.start()
    begun.wait()

    def burnt():
        with open(f"/proc/self/task/{thread.native_id}/stat") as stat:  # noqa: PTH123
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))

    # The counted interval includes the measured one, so it can't be less.
    before, mark = used(sessions), burnt()
    assert wait_until(lambda: burnt() >= mark + 20)
    went = burnt() - mark
    counted = round((used(sessions) - before) * os.sysconf("SC_CLK_TCK"))
    go_on = False
    thread.join()
    assert (counted >= went) is (name == "busy"), (counted, went)


def test_work_is_told_from_waking_now_and_then(monkeypatch):
    ticks = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    for readings, is_active in (
        ((1.0, 1.05), False),  # 5 ms per second: it wakes now and then
        ((1.0, 1.2), True),
        ((5.0, 1.0), True),  # a child that worked has exited and was not reaped
        ((None, 1.0), True),  # unknown: it may be working
        ((1.0, None), True),
    ):
        told = chain(readings, repeat(readings[-1]))
        monkeypatch.setattr(process_tree, "processor_seconds", lambda _, told=told: next(told))
        work = Activity({1})
        assert work.is_active() == is_active
        assert work.is_active() == (readings[-1] is None)  # each call counts from the last one


# ------------------------------------------------------------------------------------------ signals


@pytest.fixture
def heard():
    """SIGTERMs that this process's own handler received."""
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    yield got
    signal.signal(signal.SIGTERM, before)


def readable(interrupts):
    return bool(select.select([interrupts], [], [], 0)[0])


def test_within_the_block_a_signal_is_only_noted_and_then_handed_on(heard):
    before = os.listdir("/proc/self/fd")
    with Interrupts() as interrupts:
        assert not readable(interrupts)
        signal.raise_signal(signal.SIGTERM)
        assert readable(interrupts)
        assert interrupts.received == signal.SIGTERM
        note = signal.getsignal(signal.SIGTERM)
        for _ in range(70_000):  # more than the pipe holds
            note(signal.SIGTERM, None)  # type: ignore[operator, misc]
    assert heard == []
    interrupts.redeliver()
    assert heard == [signal.SIGTERM]
    assert os.listdir("/proc/self/fd") == before


def test_a_signal_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            assert interrupts.received is None
    finally:
        signal.signal(signal.SIGHUP, before)
