from __future__ import annotations

from typing import Any

import pytest

from distdemo.rpc import pace, reference
from distdemo.rpc.pace import INTERVAL, Pace
from distdemo.rpc.records import Progress, RpcSpec


class Clock:
    """Time that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Teller:
    """A rank's way to tell, as far as it is used here."""

    def __init__(self) -> None:
        self.told: list[Progress] = []

    def tell(self, value: Progress) -> None:
        self.told.append(value)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def test_steps_are_told_now_and_then(clock: Clock) -> None:
    rank: Any = Teller()
    steps = Pace(rank, 9, remote=True)
    for step in range(1, 10):
        clock.now += 0.4 * INTERVAL
        steps.done(step)
    assert rank.told == [
        Progress(3, 9, remote=True),
        Progress(6, 9, remote=True),
        Progress(9, 9, remote=True),
    ]


def test_a_short_training_tells_nothing(clock: Clock) -> None:
    rank: Any = Teller()
    Pace(rank, 1, remote=False).done(1)
    assert rank.told == []


def test_the_training_in_one_process_says_each_step_too() -> None:
    done: list[int] = []
    trained = reference.train_alone(RpcSpec(steps=3), done.append)
    assert done == [1, 2, 3]
    assert len(trained.losses) == 4
