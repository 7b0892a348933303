"""Disturbance of the machine: made-up texts of /proc and measurements of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdemo.measure.machine import LaunchLoad, busy_s, taken_cores

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


def test_only_time_that_the_cores_lack_was_taken_from_the_ranks():
    quiet = LaunchLoad(1, (0, 1), 1.0, 0.9, 1.82)
    for cores, busy, expected in (
        (2, 1.82, 0.02),  # two ranks, 0.02 cores for others
        (2, 2.0, 0.2),
        (2, 1.5, 0.0),  # clocks of different precision
        (4, 3.7, 0.0),  # others used two cores, but there are four
        (4, 4.0, 0.2),
        (1, 1.9, 0.1),  # two ranks on one core wanted one
    ):
        rank = replace(quiet, cpus=tuple(range(cores)), busy_s=busy)
        assert taken_cores([(rank, rank)] * 6) == pytest.approx(expected), (cores, busy)
    assert taken_cores([(quiet, replace(quiet, cpus=(9,), busy_s=None))]) is None
    assert taken_cores([]) is None
