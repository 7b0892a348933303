"""Disturbance of the machine: made-up texts of /proc and measurements of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdemo.measure.machine import CopySpeed, LaunchLoad, Load, busy_s, taken_cores, total_load

STAT = """cpu  900 10 90 5000 0 0 0 300 77 0
cpu0 400 10 50 2000 11 12 13 100 33 0
cpu1 500 0 40 3000 21 22 23 200 44 0
cpu12 7 7 7 7
intr 1 2 3
"""


def test_the_busy_time_of_the_cpus_that_a_rank_may_use():
    """User, nice and system, and what the hypervisor took; no idle, waiting or interrupt time."""
    for cpus, expected in (((0,), 5.6), ((0, 1), 13.0), ((12,), 0.21), ((0, 2), None), ((), None)):
        assert busy_s(STAT, cpus, 100) == (expected and pytest.approx(expected)), cpus
    assert busy_s("", (0,)) is None


FULL = CopySpeed(0.99, 9e9)
QUIET = LaunchLoad(1, (0, 1), 1.0, 0.9, 1.82, (FULL, FULL))
HALF = replace(QUIET, copies=(CopySpeed(0.5, 9e9),) * 2)


def total(*ranks: LaunchLoad, launches: int = 6, hosts: tuple[str, ...] = ()) -> Load:
    """Return the load of launches that are all alike."""
    load = total_load([ranks] * launches, hosts)
    assert load is not None
    return load


def test_only_time_that_the_cores_lack_was_taken_from_the_ranks():
    for cores, busy, expected in (
        (2, 1.82, 0.02),  # two ranks, 0.02 cores for others
        (2, 2.0, 0.2),
        (2, 1.5, 0.0),  # clocks of different precision
        (4, 3.7, 0.0),  # others used two cores, but there are four
        (4, 4.0, 0.2),
        (1, 1.9, 0.1),  # two ranks on one core wanted one
    ):
        rank = replace(QUIET, cpus=tuple(range(cores)), busy_s=busy)
        assert total(rank, rank).taken_cores == pytest.approx(expected), (cores, busy)
    assert total(QUIET, replace(QUIET, cpus=(9,), busy_s=None)).taken_cores is None
    sleepy = [replace(QUIET, cpus=tuple(range(4)), own_s=0.4, busy_s=3.9)] * 4
    assert taken_cores([sleepy], at_once=2) == pytest.approx(0.3), "two of them sleep"


def test_a_rank_that_gets_less_of_a_core_again_and_again_is_slowed():
    busy = (replace(QUIET, busy_s=2.0), replace(HALF, busy_s=2.0, own_s=0.5))
    for ranks, slowed in (
        ((QUIET, HALF), (1,)),
        ((HALF, HALF), ()),  # all suffer alike
        (busy, ()),  # another program met one rank more often
        ((busy[0], replace(busy[1], cpus=(1,), busy_s=1.0)), (1,)),  # bound to its core
        ((QUIET, replace(QUIET, copies=(CopySpeed(0.8, 9e9),) * 2)), ()),
    ):
        assert total(*ranks).slowed_ranks == slowed, ranks
    assert total(QUIET, HALF, launches=2).slowed_ranks == (), "too few launches"
    for launches, slowed in (
        ([(QUIET, HALF), (HALF, QUIET)] * 4, ()),  # a program moves from core to core
        ([(QUIET, HALF)] * 9 + [(HALF, QUIET)], (1,)),
    ):
        load = total_load(launches)
        assert load is not None
        assert load.slowed_ranks == slowed
