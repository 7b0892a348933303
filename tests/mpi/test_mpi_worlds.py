"""The launcher with MPI: real ranks, started without mpiexec."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import (
    LOOPBACK,
    PATIENCE,
    marked_processes,
    segments,
    tcp_addresses,
    wait_until,
    warmed,
)
from mpi.worlds import OTHERS, ROOT, ROOTED, needs_mpi

from distdemo.errors import EXIT_OK, EXIT_USAGE

pytestmark = [pytest.mark.mpi, needs_mpi, pytest.mark.processes]

PROGRAM = str(Path(__file__).with_name("launched.py"))
SCENES = ("add", "killed", "absent")


def assert_gone(run, used):
    """Assert that no process, temporary file or segment of this run is left."""
    assert wait_until(lambda: not marked_processes(run.mark)), marked_processes(run.mark)
    assert list(run.temporary.iterdir()) == []
    assert not used & segments()


def test_ranks_of_a_forkserver_compute_and_the_one_at_fault_is_named(tmp_path):
    """Run all scenes in one program, which must leave nothing behind."""
    with warmed([PROGRAM, "forkserver", *SCENES], tmp_path) as run:
        code, out, err = run.finish()
        assert (code, err) == (EXIT_OK, ""), out
        lines = [json.loads(line) for line in out.splitlines()]
        used = [line["segments"] for line in lines if "segments" in line]
        assert_gone(run, {name for names in used for name in names})
    add, killed, absent = [line for line in lines if "segments" not in line]
    assert add["values"] == [[6, 6]] * 3
    assert (killed["rank"], absent["rank"]) == (1, 1)
    assert "Rank 1 was killed by SIGKILL." in killed["what"]
    assert "rank 1 is not" in absent["what"]
    assert "waiting in all_reduce at launched.py" in absent["what"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_launcher_that_is_stopped_leaves_nothing(tmp_path, number):
    with warmed([PROGRAM, "fork", "hold"], tmp_path) as run:
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


@pytest.mark.skipif(not OTHERS, reason="DISTDEMO_TEST_MPI_PYTHONS has no other MPI's Python")
@pytest.mark.parametrize("python", OTHERS)
def test_the_suggested_command_starts_ranks_of_another_mpi(python):
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    folder = f"{Path(python).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": path, "PATH": folder, "COLUMNS": "500"}
    command = [python, "-m", "distdemo", "all-reduce", "--backend", "mpi", "-n", "3"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert refused.returncode == EXIT_USAGE, refused.stdout + refused.stderr
    line = shlex.split(refused.stderr.splitlines()[-1].removeprefix("Try "))
    assert "mpiexec" in line[0]
    place = line.index("distdemo")
    line[place : place + 1] = [python, "-m", "distdemo"]
    done = subprocess.run(
        line, capture_output=True, text=True, check=False, env=environment | ROOTED
    )
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    assert "Verified" in done.stdout
