"""Disturbance of the machine: made-up texts of /proc and measurements of ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdemo.measure.machine import LaunchLoad, taken_cores


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
