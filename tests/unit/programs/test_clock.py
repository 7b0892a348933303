from __future__ import annotations

import pytest
import torch

from distdemo import ops
from distdemo.demo.clock import EventClock, clock_of
from distdemo.demo.holdings import EVENTS, HOST
from distdemo.ops.spec import OpSpec

ALL_REDUCE = ops.REGISTRY["all_reduce"]


@pytest.mark.parametrize(
    ("device", "name", "spec", "clock"),
    [
        ("cpu", "all_reduce", OpSpec("all_reduce", 2, reduce_op="sum"), HOST),
        ("cuda:1", "all_reduce", OpSpec("all_reduce", 2, reduce_op="sum"), EVENTS),
        ("cuda:0", "broadcast", OpSpec("broadcast", 2, root=0, objects=True), HOST),
        ("cuda:0", "barrier", OpSpec("barrier", 2, shape=()), HOST),
    ],
)
def test_tensors_on_a_gpu_are_timed_by_events_and_all_else_by_the_host(
    device: str, name: str, spec: OpSpec, clock: str
) -> None:
    assert clock_of(device, ops.REGISTRY[name], spec).name == clock


def test_the_hosts_clock_counts_seconds() -> None:
    clock = clock_of("cpu", ALL_REDUCE, OpSpec("all_reduce", 2, reduce_op="sum"))
    first = clock.mark()
    second = clock.mark()
    assert 0 <= clock.between(first, second) < 1
    assert clock.between(second, first) <= 0


class Stamp:
    """A CUDA event as the GPU would stamp it: the next millisecond each time."""

    made: list[Stamp] = []  # noqa: RUF012 - one list for all, on purpose

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing, "an event without it can't be timed"
        self.steps: list[str] = []
        self.at = 0.0
        self.made.append(self)

    def record(self) -> None:
        self.steps.append("record")
        self.at = 2.5 * len(self.made)

    def synchronize(self) -> None:
        self.steps.append("synchronize")

    def elapsed_time(self, end: Stamp) -> float:
        assert "synchronize" in end.steps, "the GPU may not have come to it yet"
        return end.at - self.at


def test_events_are_recorded_waited_for_and_read_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Stamp)
    clock = EventClock()
    first, second = clock.mark(), clock.mark()
    assert [each.steps for each in Stamp.made] == [["record"], ["record"]]
    assert clock.between(first, second) == pytest.approx(0.0025)
