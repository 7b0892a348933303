from __future__ import annotations

import resource

import pytest

from distdemo.errors import UsageError
from distdemo.launcher import limits
from distdemo.launcher.limits import MIB, check_machine, free_memory, open_files
from distdemo.launcher.records import WorldSpec

GROUP = "/sys/fs/cgroup"
NEEDED = 100 * limits.FILES_PER_RANK + limits.FILES_OF_ITS_OWN


def memory(mib):
    return {"/proc/meminfo": f"MemTotal: 9999 kB\nMemAvailable:   {mib * 1024} kB\nSwapFree: 5 kB"}


def group(most, now, stat=""):
    files = {"memory.max": most, "memory.current": now, "memory.stat": stat}
    return {f"{GROUP}/{name}": str(text) for name, text in files.items()}


def test_memory_is_what_the_machine_or_its_container_leaves(machine):
    for files, free in (
        (memory(1), 1),
        (memory(9999) | group(100 * MIB, 30 * MIB), 70),
        (memory(1) | group("max", 30 * MIB), 1),
        # memory.current counts the page cache; a container that has read a lot is at its limit.
        (group(1000 * MIB, 1000 * MIB, f"anon {200 * MIB}\ninactive_file {700 * MIB}\n"), 700),
    ):
        machine.clear()
        machine |= files
        assert free_memory() == free * MIB


def test_a_world_is_refused_with_the_number_that_fits(machine):
    check_machine(WorldSpec(100_000), data_bytes=10**15)  # no known limit
    pids = {f"{GROUP}/pids.max": "1000", f"{GROUP}/pids.current": "10"}
    pids_max = "Processes: the control group's pids.max is 1,000, 10 in use; a rank needs 4."
    for files, method, most, why in (
        (memory(100), "fork", 10, "Memory: 100 MiB free, about 10 MiB per rank."),
        (memory(1000), "spawn", 5, "Memory: 1,000 MiB free, about 180 MiB per rank."),
        (pids, "fork", 247, pids_max),
    ):
        machine.clear()
        machine |= files
        check_machine(WorldSpec(most, start_method=method))
        with pytest.raises(UsageError) as caught:
            check_machine(WorldSpec(most + 1, start_method=method))
        assert caught.value.what == f"This machine can't hold {most + 1} ranks: {most} at most."
        assert caught.value.why == why
        assert caught.value.hint


def test_the_soft_limit_on_open_files_is_raised_only_as_far_as_needed(monkeypatch):
    for soft, hard, raised in (
        (64, 100_000, True),
        (100_000, 100_000, False),  # enough already
    ):
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda which, pair=(soft, hard): pair)
        monkeypatch.setattr(
            resource, "setrlimit", lambda which, pair, asked=asked: asked.append(pair)
        )
        with open_files(WorldSpec(100)):
            assert len(asked) == raised
            if raised:
                assert NEEDED <= asked[0][0] < 2 * NEEDED or asked[0][0] == hard
        assert asked[1:] == [(soft, hard)] * raised
