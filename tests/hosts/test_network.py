from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import wait_until
from hosts.network import (
    ETC,
    STEM,
    Command,
    Host,
    Network,
    is_dead,
    network,
    processes,
    remove_leftovers,
)

pytestmark = pytest.mark.hosts

Hosts = Callable[[int], Network]

SERVER = """
import socket, sys
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, peer = server.accept()
    with connection:
        got = 0
        while data := connection.recv(1 << 20):
            got += len(data)
        print(got, peer[0], flush=True)
"""
CLIENT = """
import socket, sys, time
host, port, size, patience = sys.argv[1], *map(float, sys.argv[2:])
with socket.create_connection((host, int(port)), patience) as connection:
    started = time.monotonic()
    connection.sendall(bytes(int(size)))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)  # until the other side has read it all
    print(time.monotonic() - started)
"""


def serve(host: Host) -> tuple[Command, str]:
    """A server on this host, and its port."""
    server = host.start(python(SERVER))
    assert wait_until(lambda: server.said().endswith("\n")), server.complained()
    return server, server.said().strip()


def python(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", text, *arguments]


def send(host: Host, to: str, port: str, size: int, patience: float = 10) -> tuple[int, str, str]:
    return host.run(python(CLIENT, to, port, str(size), str(patience)))


def test_hosts_have_names_reach_each_other_by_them_and_nothing_else(hosts: Hosts) -> None:
    net = hosts(2)
    h0, h1 = net
    server, port = serve(h0)
    code, _, complaint = send(h1, "h0", port, 1000)
    assert (code, complaint) == (0, "")
    assert server.finish() == (0, f"{port}\n1000 {h1.address}\n", "")
    routes = h0.run(["ip", "route"])[1].splitlines()
    assert [line.split()[0] for line in routes] == ["10.77.1.0/24"]
    assert h0.run(["getent", "hosts", "example.org"])[0] == 2  # found nowhere, nobody waited for
    # As mpiexec does, with options of ssh's before the name and all else as one line.
    shell = str(net.shell)
    told = h0.run([shell, "-x", "h1", 'hostname; echo "$X"'], env={"X": "a  b"})
    assert told == (0, "h1\na  b\n", "")
    assert h0.run([shell, "h7", "true"]) == (255, "", "no host h7\n")


def test_a_pulled_cable_keeps_everything_away_until_it_is_plugged_in_again(hosts: Hosts) -> None:
    net = hosts(2)
    h0, h1 = net
    server, port = serve(h0)
    net.cut(h1)
    code, _, complaint = send(h1, "h0", port, 1, patience=0.3)
    assert code == 1
    assert "timed out" in complaint or "No route to host" in complaint
    assert h1.run(["ip", "-brief", "address", "show", "eth0"])[1].split()[2] == f"{h1.address}/24"
    net.mend(h1)
    assert send(h1, "h0", port, 1)[0] == 0
    assert server.finish()[0] == 0


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
