from __future__ import annotations

import pytest
import torch

from distdemo.train.clock import HostClock, clock_of
from distdemo.train.intervals import length, union, until
from distdemo.train.ledger import Ledger
from distdemo.train.records import Span
from distdemo.train.spans import on_one_clock, spans_of


class Ticks:
    """A clock that the test moves on; its marks are in halves."""

    def __init__(self):
        self.now = 0.0

    def begin(self):
        pass

    def mark(self):
        return self.now * 2

    def settle(self):
        pass

    def read(self, mark):
        return mark / 2


def test_time_under_way_is_counted_once():
    together = union([(8, 9), (3, 6), (1, 4), (6, 6.5)])
    assert together == [(1, 6.5), (8, 9)]
    assert length(together) == 6.5
    assert until(together, 8.5) == [(1, 6.5), (8, 8.5)]
    assert until(together, 1) == []


def test_a_step_like_ddp_s_is_told_with_what_overlapped():
    ledger = Ledger(clock := Ticks())
    ledger.turn()
    gradients = torch.zeros(3, dtype=torch.float64)
    with ledger.working("backward"):
        clock.now = 1
        first = ledger.sending("first", gradients)
        clock.now = 4
        ledger.computed()
        second = ledger.sending("second", gradients[:1])
        clock.now = 5
        ledger.arrived(first)
        clock.now = 7
        ledger.arrived(second)
    (account,) = ledger.close()
    assert list(account.moves) == [("first", 1.0, 5.0, 24), ("second", 4.0, 7.0, 8)]
    assert (account.busy, account.overlapped, account.size) == (6, 3, 32)


def test_an_epoch_is_closed_once():
    ledger = Ledger(Ticks())
    ledger.turn()
    assert len(ledger.close()) == 1
    assert not ledger.close()


def test_collectives_after_the_backward_pass_overlap_with_nothing():
    ledger = Ledger(clock := Ticks())
    ledger.turn()
    with ledger.working("backward"):
        clock.now = 2
    with ledger.moving("all_reduce", torch.zeros(2)):
        clock.now = 5
    (account,) = ledger.close()
    assert (account.busy, account.overlapped, account.computed) == (3, 0, 2)


def test_spans_are_counted_from_the_first_of_their_host():
    ledger = Ledger(clock := Ticks())
    for _ in range(2):
        ledger.turn()
        with ledger.working("backward"):
            clock.now += 2
        with ledger.moving("all_reduce", torch.zeros(2)):
            clock.now += 1
    spans = spans_of(ledger.close(), 1, "flat")
    assert [(s.track, s.start, s.seconds, s.step, s.size) for s in spans] == [
        ("compute", 0, 2, 0, 0),
        ("communication", 2, 1, 0, 8),
        ("compute", 3, 2, 1, 0),
        ("communication", 5, 1, 1, 8),
    ]
    other = Span(0, "compute", "forward", 100.0, 1.0, "flat", 0)
    shared = on_one_clock([other, *spans], ())
    assert [span.start for span in shared] == [0, 2, 3, 5, 100]
    apart = on_one_clock([other, *spans], ("a", "b"))
    assert [span.start for span in apart if span.rank == 0] == [0]
    assert on_one_clock([], ()) == ()


def test_the_cpu_is_timed_by_the_clock_that_processes_share():
    clock = clock_of("cpu")
    assert isinstance(clock, HostClock)
    clock.begin()
    first = clock.mark()
    clock.settle()
    assert clock.read(clock.mark()) >= clock.read(first)


@pytest.mark.gpu
def test_a_gpu_is_timed_by_its_own_events():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    clock = clock_of("cuda")
    first = clock.mark()
    torch.ones(1 << 20, device="cuda").sum()
    second = clock.mark()
    clock.settle()
    assert clock.read(first) <= clock.read(second)
