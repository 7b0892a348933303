"""Processes that user programs leave behind, processor use, and signals."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from forked import in_a_child
from helpers import wait_until
from torch._C._distributed_c10d import FileStore

from distdemo.launcher.process_tree import Activity, ProcessTree
from distdemo.signals import Interrupts

WAITING = 40  # threads that poll a store


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


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "counted"), [("busy", True), ("gloo_tcp_loop", False), ("TP_SHM_reactor", False)]
)
def test_a_thread_at_work_is_counted_but_none_of_the_backend(name, counted):
    in_a_child(burn, name, counted)


def burn(name, counted):
    """Use the processor in a thread, in a session that has no process of other tests."""
    os.setsid()
    stop = threading.Event()

    def work():
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        while not stop.is_set():
            pass

    thread = threading.Thread(target=work)
    activity = Activity({os.getsid(0)})
    until = time.process_time() + 0.3
    thread.start()
    assert wait_until(lambda: time.process_time() > until)
    assert activity.is_active() is counted
    stop.set()
    thread.join()


@pytest.mark.processes
def test_ranks_that_poll_a_store_wait(tmp_path):
    in_a_child(poll_store, str(tmp_path / "store"))


def poll_store(file):
    """Wait in more threads for a store than together use little of the processor."""
    os.setsid()
    store = FileStore(file)
    started = threading.Barrier(WAITING + 1)

    def wait():
        started.wait()
        with pytest.raises(RuntimeError):
            store.wait(["missing"], timedelta(seconds=2))

    threads = [threading.Thread(target=wait) for _ in range(WAITING)]
    for thread in threads:
        thread.start()
    started.wait()
    activity = Activity({os.getsid(0)})
    with pytest.raises(RuntimeError):
        store.wait(["missing"], timedelta(seconds=1))
    assert not activity.is_active()
    for thread in threads:
        thread.join()


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
