from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from distdemo.launcher.interrupts import Interrupts


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The SIGTERMs that this process's own handler got."""
    got: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    yield got
    signal.signal(signal.SIGTERM, before)


def readable(interrupts: Interrupts) -> bool:
    return bool(select.select([interrupts], [], [], 0)[0])


def test_within_the_block_a_signal_is_only_noted(heard: list[int]) -> None:
    with Interrupts() as interrupts:
        assert not readable(interrupts)
        signal.raise_signal(signal.SIGTERM)
        assert readable(interrupts)
        assert interrupts.received == signal.SIGTERM
    assert heard == []


def test_afterwards_the_old_handler_is_back_and_gets_the_signal(heard: list[int]) -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
    interrupts.redeliver()
    assert heard == [signal.SIGTERM]


def test_without_a_signal_nothing_is_delivered(heard: list[int]) -> None:
    with Interrupts() as interrupts:
        pass
    interrupts.redeliver()
    assert heard == []


def test_ctrl_c_becomes_a_keyboard_interrupt_afterwards() -> None:
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupts.redeliver()


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            assert interrupts.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_more_signals_than_the_pipe_holds_do_not_block(heard: list[int]) -> None:
    with Interrupts() as interrupts:
        note: Any = signal.getsignal(signal.SIGTERM)
        for _ in range(100_000):
            note(signal.SIGTERM, None)
        assert interrupts.received == signal.SIGTERM
    assert heard == []


def test_no_descriptor_is_left() -> None:
    before = os.listdir("/proc/self/fd")
    with Interrupts():
        pass
    assert os.listdir("/proc/self/fd") == before


def test_in_a_thread_nothing_is_watched_and_nothing_breaks() -> None:
    watched: list[bool] = []

    def within() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with Interrupts():
            watched.append(signal.getsignal(signal.SIGTERM) is not before)

    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert watched == [False]
