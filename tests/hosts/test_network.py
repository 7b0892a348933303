from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import wait_until
from hosts.network import (
    ETC,
    STEM,
    Network,
    is_dead,
    network,
    processes,
    remove_leftovers,
)

pytestmark = pytest.mark.hosts

Hosts = Callable[[int], Network]


def test_nothing_is_left_whatever_runs_on_the_hosts(tmp_path: Path) -> None:
    class FaultError(Exception):
        pass

    def fail() -> None:
        with network(1, tmp_path) as net:
            names.append(net[0].namespace)
            stubborn = "trap '' TERM INT HUP; sleep 600 & setsid sleep 600 & echo here; wait"
            command = net[0].start(["sh", "-c", stubborn])
            assert wait_until(lambda: len(net[0].processes()) == 3), net[0].processes()
            assert command.said() == "here\n"
            pids.extend(net[0].processes())
            raise FaultError

    names: list[str] = []
    pids: list[int] = []
    with pytest.raises(FaultError):
        fail()
    assert all(is_dead(pid) for pid in pids)
    assert list(Path("/run/netns").glob(f"{STEM}-{os.getpid()}-*")) == []
    assert not (ETC / names[0]).exists()


def test_what_a_killed_run_left_is_removed_by_the_next(hosts: Hosts) -> None:
    """Its processes too, and nobody else's."""
    own = hosts(1)[0]
    dead = next(pid for pid in range(300, 4_000_000) if not Path(f"/proc/{pid}").exists())
    left = f"{STEM}-{dead}-abcdef-h0"
    subprocess.run(["ip", "netns", "add", left], check=True)
    (ETC / left).mkdir(parents=True)
    sleeper = subprocess.Popen(["ip", "netns", "exec", left, "sleep", "600"])
    try:
        assert wait_until(lambda: processes(left) == [sleeper.pid])
        remove_leftovers()
        assert sleeper.wait(10) == -9
    finally:
        sleeper.kill()
    assert not Path("/run/netns", left).exists()
    assert not (ETC / left).exists()
    assert Path("/run/netns", own.namespace).exists()
