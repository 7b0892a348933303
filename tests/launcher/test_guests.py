from __future__ import annotations

import os
import subprocess
import sys

import pytest
from distdemo.launcher.guests import Household, stdin_of
from helpers import wait_until

from distdemo.launcher.records import UserProgram


def test_a_household_whose_keeper_was_killed_does_it_itself():
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True) as inside:
        household = Household()
        household.watch(inside.pid)
        household._keeper._process.kill()
        household.clear()
        assert wait_until(lambda: inside.poll() is not None)


@pytest.mark.parametrize(
    ("program", "rank"),
    [(None, 0), (UserProgram(), 1), (UserProgram(stdin=2), 0), (UserProgram(stdin=-1), 0)],
)
def test_ranks_without_standard_input(program, rank):
    assert stdin_of(program, rank) is None


def test_one_rank_gets_a_copy_of_standard_input():
    given = stdin_of(UserProgram(stdin=2), 2)
    assert given is not None
    with given:
        assert os.path.sameopenfile(given.fileno(), 0)
        assert given.fileno() != 0


def test_a_household_ends_what_is_in_its_sessions_and_nothing_else():
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True) as inside,
        subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True) as outside,
    ):
        household = Household()
        household.watch(inside.pid)
        household.watch(None)  # a process that could not be started
        household.clear()
        assert wait_until(lambda: inside.poll() is not None)
        assert inside.returncode == -9
        assert outside.poll() is None
        outside.kill()
