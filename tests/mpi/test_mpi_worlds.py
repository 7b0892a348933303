"""The launcher with MPI: real ranks, started without mpiexec."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from helpers import LOOPBACK, PATIENCE, marked_processes, segments, tcp_addresses, wait_until
from mpi.worlds import needs_mpi

from distdemo.errors import EXIT_OK

pytestmark = [pytest.mark.mpi, needs_mpi, pytest.mark.processes]

PROGRAM = str(Path(__file__).with_name("launched.py"))


def assert_gone(run, used):
    """Assert that no process, temporary file or segment of this run is left."""
    assert wait_until(lambda: not marked_processes(run.mark)), marked_processes(run.mark)
    assert list(run.temporary.iterdir()) == []
    assert not used & segments()


def test_a_killed_rank_of_a_forkserver_is_named_and_leaves_nothing(start):
    with start("python", PROGRAM, "forkserver", "killed") as run:
        code, out, err = run.finish()
        assert (code, err) == (EXIT_OK, ""), out
        used, error = [json.loads(line) for line in out.splitlines()]
        assert_gone(run, set(used["segments"]))
    assert error["rank"] == 1
    assert "Rank 1 was killed by SIGKILL." in error["what"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_launcher_that_is_stopped_leaves_nothing(start, number):
    with start("python", PROGRAM, "fork", "hold") as run:
        assert run.process.stdout is not None
        lines = [json.loads(run.process.stdout.readline()) for _ in range(4)]
        there = marked_processes(run.mark)
        assert {line for line in lines if isinstance(line, int)} <= set(there)
        heard = {each for pid in there for each in tcp_addresses(pid, listening=True)}
        assert heard <= LOOPBACK
        used = {name for line in lines if isinstance(line, dict) for name in line["segments"]}
        run.process.send_signal(number)
        assert run.process.wait(PATIENCE) != EXIT_OK
        assert_gone(run, used)
