"""What the system says about processes, sockets and shared memory."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE = 100.0  # seconds after which a test gives up
MARK = "DISTDEMO_TEST_MARK"  # an environment variable that only the tests' own processes carry
# Folder of forked programs: the system shows the environment that a process had at the last exec.
PLACE = "distdemo-test-"


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Return True if the condition becomes true in this time; check it every few milliseconds."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > until:
            return False
        pause.wait(0.005)
    return True


def marked_processes(mark: str) -> list[int]:
    """Return the living processes that were started, directly or not, with this mark."""
    pids = []
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            place = (entry / "cwd").readlink().name
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue  # it has just exited
        if (wanted in environment or place.startswith(PLACE + mark)) and state != "Z":
            pids.append(int(entry.name))
    return pids


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    pids: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += map(int, (task / "children").read_text().split())
    except OSError:
        return []
    return pids


def segments() -> set[str]:
    """Return the names of this machine's shared-memory segments."""
    return set(os.listdir("/dev/shm"))  # looked at only


def unused(names: set[str]) -> set[str]:
    """Return those of these segments that no living process has in its memory."""
    left = set(names)
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with suppress(OSError):  # it has just exited
            text = maps.read_text()
            left -= {name for name in left if f"/{name}" in text}
    return left


def leftovers(before: set[str]) -> set[str]:
    """Return new segments that nobody uses, except those of an MPI world of another test."""
    return unused({name for name in segments() - before if not name.startswith("mpich")})


def tcp_addresses(pid: int, *, listening: bool = False, ports: bool = False) -> list[str]:
    """Return the local addresses of a process's TCP sockets, or their ports, as the kernel does.

    A process that has exited has none.
    """
    inodes = set()
    addresses = []
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # the descriptor was closed
                target = str(Path(f"/proc/{pid}/fd/{fd}").readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in inodes and (words[3] == "0A" or not listening):
                    addresses.append(words[1].split(":")[ports])
    return addresses


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def free_port() -> int:
    """Return a port of loopback that is free and that the system assigns to nobody.

    It is below those that connections and listeners without a choice get, so that no test beside
    this one is given it between now and its use.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(min(20_000, first - 1), first)
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port is taken")
