from __future__ import annotations

import resource
import socket

import pytest

from distdemo.errors import UsageError
from distdemo.launcher import limits
from distdemo.launcher.limits import MIB, check_loopback, check_machine, free_memory, open_files
from distdemo.launcher.records import WorldSpec

GROUP = "/sys/fs/cgroup"
OLD_GROUP = "/sys/fs/cgroup/memory"
NEEDED = 100 * limits.FILES_PER_RANK + limits.FILES_OF_ITS_OWN
LOADED = {"/proc/loadavg": "0.10 0.20 0.30 2/3000 4711"}


def memory(mib):
    return {"/proc/meminfo": f"MemTotal: 9999 kB\nMemAvailable:   {mib * 1024} kB\nSwapFree: 5 kB"}


def group(most, now, stat=""):
    files = {"memory.max": most, "memory.current": now, "memory.stat": stat}
    return {f"{GROUP}/{name}": str(text) for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (memory(1), 1),
        (memory(9999) | group(100 * MIB, 30 * MIB), 70),
        (
            {
                f"{OLD_GROUP}/memory.limit_in_bytes": str(100 * MIB),
                f"{OLD_GROUP}/memory.usage_in_bytes": str(101 * MIB),
            },
            0,
        ),
        (memory(1) | group("max", 30 * MIB), 1),
        # memory.current counts the page cache; a container that has read a lot is at its limit.
        (group(1000 * MIB, 1000 * MIB, f"anon {200 * MIB}\ninactive_file {700 * MIB}\n"), 700),
    ],
)
def test_memory_is_what_the_machine_or_its_container_leaves(files, free, machine):
    machine |= files
    assert free_memory() == free * MIB


@pytest.mark.parametrize(
    ("files", "settings", "most", "why"),
    [
        ({}, {}, None, ""),
        (memory(100), {}, 10, "Memory: 100 MiB free, about 10 MiB a rank."),
        (
            memory(1000),
            {"start_method": "spawn"},
            5,
            "Memory: 1e+03 MiB free, about 180 MiB a rank.",
        ),
        (
            {
                "/proc/loadavg": "0.10 0.20 0.30 2/300 4711",
                "/proc/sys/kernel/pid_max": "400",
                "/proc/sys/kernel/threads-max": "100000",
            },
            {},
            100,
            "Processes: kernel.pid_max is 400.",
        ),
        # A container sees all of the host's threads in /proc/loadavg, thousands of them.
        (
            LOADED | {f"{GROUP}/pids.max": "1000", f"{GROUP}/pids.current": "10"},
            {},
            990,
            "Processes: the control group's pids.max is 1,000.",
        ),
        (
            LOADED | {"/proc/sys/kernel/threads-max": "2000"},
            {},
            0,
            "Processes: kernel.threads-max is 2,000.",
        ),
    ],
)
def test_a_world_is_refused_with_the_number_that_fits(files, settings, most, why, machine):
    machine |= files
    if most is None:
        check_machine(WorldSpec(100_000), data_bytes=10**15)
        return
    if most:
        check_machine(WorldSpec(most, **settings))
    with pytest.raises(UsageError) as caught:
        check_machine(WorldSpec(most + 1, **settings))
    assert caught.value.what == f"This machine can't hold {most + 1} ranks: {most} at most."
    assert caught.value.why == why


def test_too_little_memory_for_the_tensors_is_told_apart(machine):
    machine |= memory(100)
    check_machine(WorldSpec(4), 60 * MIB)
    with pytest.raises(UsageError, match="The tensors of 4 ranks need 61 MiB") as caught:
        check_machine(WorldSpec(4), 61 * MIB)
    assert "60 MiB" in caught.value.why


@pytest.mark.usefixtures("machine")
def test_open_files_limit_the_ranks(monkeypatch):
    monkeypatch.setattr(limits, "_limit_on", lambda name, **_: 1064)
    check_machine(WorldSpec(250))
    with pytest.raises(UsageError) as caught:
        check_machine(WorldSpec(251))
    assert "Open files: 1,064 at most" in caught.value.why


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (64, 100_000, True),
        (64, resource.RLIM_INFINITY, True),
        (64, 80, True),  # as many as there may be
        (100_000, 100_000, False),  # there are enough
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, False),
    ],
)
def test_the_soft_limit_on_open_files_is_raised_only_as_far_as_needed(
    soft, hard, raised, monkeypatch
):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: asked.append(pair))
    with open_files(WorldSpec(100)):
        assert len(asked) == raised
        if raised:
            assert NEEDED < asked[0][0] < 2 * NEEDED or asked[0][0] == hard
    assert asked[1:] == [(soft, hard)] * raised


def test_a_machine_without_a_loopback_interface_is_refused(monkeypatch):
    check_loopback()

    class Unreachable(socket.socket):
        def connect(self, address):
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", Unreachable)
    with pytest.raises(UsageError, match="could not reach each other") as caught:
        check_loopback()
    assert "ip link" in caught.value.hint


def test_this_very_machine_can_hold_a_world():
    check_machine(WorldSpec(1))
    assert all(limit.ranks >= 1 and limit.why for limit in limits.limits(WorldSpec(1)))
