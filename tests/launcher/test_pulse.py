from __future__ import annotations

import os
from itertools import chain, repeat

import pytest

from distdemo.launcher.process_tree import Pulse, used


def test_a_process_at_work_uses_time():
    session = os.getsid(0)
    before = used({session})
    assert before is not None
    begun = sum(os.times()[:2])
    while sum(os.times()[:2]) < begun + 0.05:
        pass
    after = used({session})
    assert after is not None
    assert after > before


def test_sessions_that_nobody_leads_use_none():
    assert used({-1}) == 0
    assert used(set()) == 0


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock goes on by 10 s at each look."""
    ticks = iter(range(0, 1000, 10))
    monkeypatch.setattr("distdemo.launcher.pulse.time.monotonic", lambda: next(ticks))


@pytest.mark.parametrize(
    ("readings", "beats"),
    [
        ((1.0, 1.05), False),  # 5 ms a second: it wakes now and then
        ((1.0, 1.2), True),
        ((5.0, 1.0), True),  # a child that worked has ended, and was not waited for
        ((None, 1.0), True),  # nobody tells: it may be at work
        ((1.0, None), True),
    ],
)
@pytest.mark.usefixtures("clock")
def test_work_is_told_from_waking_now_and_then(readings, beats):
    told = chain(readings, repeat(readings[-1]))
    assert Pulse({1}, lambda _: next(told)).beats() == beats


@pytest.mark.usefixtures("clock")
def test_each_look_counts_from_the_last_one():
    readings = iter([0.0, 4.0, 4.0, 4.0])
    watched = Pulse({1}, lambda _: next(readings))
    assert [watched.beats() for _ in range(3)] == [True, False, False]
