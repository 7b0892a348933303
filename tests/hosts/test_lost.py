"""Nodes under the sanitizer that are killed, stop for a while, or join late: what rank 0 says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import wait_until
from hosts.network import Host, Network
from processes import Run

pytestmark = [pytest.mark.hosts, pytest.mark.processes]

Hosts = Callable[[int], Network]

PORT = 29511  # on hosts that nobody else has
LOOP = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
calls = 0
while calls != int(sys.argv[1]):
    dist.all_reduce(torch.ones(4))
    calls += 1
    if calls == 20 and dist.get_rank() == 0:
        print("running", flush=True)
dist.destroy_process_group()
"""
FOREVER = -1


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A program that makes a number of calls."""
    file = tmp_path / "loop.py"
    file.write_text(LOOP)
    return file


def started(host: Host, net: Network, loop: Path, calls: int) -> Run:
    """Start the host's rank under the sanitizer, with the variables that torchrun sets."""
    where = {"MASTER_ADDR": net[0].address, "MASTER_PORT": str(PORT)}
    own = {"WORLD_SIZE": str(len(net)), "RANK": host.name[1:]}
    return host.start("python", "-m", "distdemo.sanitizer", loop, calls, env={**where, **own})


def running(net: Network, loop: Path) -> list[Run]:
    """Start all ranks and return when they have met in calls."""
    runs = [started(host, net, loop, FOREVER) for host in net]
    while runs[0].read_line() != "running\n":  # torch 2.8 to 2.10 greet first
        assert runs[0].process.poll() is None
    return runs


def test_a_killed_node_is_named_and_the_others_end(hosts: Hosts, loop: Path) -> None:
    net = hosts(3)
    runs = running(net, loop)
    for pid in net[2].processes():
        os.kill(pid, signal.SIGKILL)
    (code, out, _), *others = [run.finish() for run in runs]
    assert [code, *(other[0] for other in others)] == [1, 1, -signal.SIGKILL]
    assert "Rank 2: no sign of life for 8 s (host h2)." in out


def test_a_node_that_stops_is_named_and_ends_when_it_goes_on(hosts: Hosts, loop: Path) -> None:
    net = hosts(3)
    runs = running(net, loop)
    stopped = net[2].processes()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    for code, out, _ in [run.finish() for run in runs[:2]]:
        assert code == 1
        assert ("Rank 2: no sign of life for 8 s (host h2)." in out) == bool(out.strip())
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    code, _, err = runs[2].finish()
    assert (code, err.splitlines()[0]) == (1, "Node 0 gave no verdict.")


def test_a_node_that_joins_late_is_waited_for(hosts: Hosts, loop: Path) -> None:
    net = hosts(3)
    runs = [started(host, net, loop, 30) for host in list(net)[:2]]
    assert wait_until(lambda: all(len(host.processes()) >= 3 for host in list(net)[:2]))
    runs.append(started(net[2], net, loop, 30))
    (code, out, err), *others = [run.finish() for run in runs]
    assert [code, *(other[0] for other in others)] == [0, 0, 0], out + err
    assert "All 3 ranks finished" in out
