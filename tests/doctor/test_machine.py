"""Memory, limits and cores of simulated machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdemo.doctor import machine
from distdemo.doctor.records import Finding
from distdemo.doctor.system import DiskSpace, System
from distdemo.launcher.limits import MIB, Limit

Case = tuple[Callable[[System], Finding], dict[str, Any], str, str]


def free(mib: float) -> dict[str, Any]:
    return {"disk_space": lambda path: DiskSpace(64 * MIB, int(mib * MIB))}


def room_for(forked: int, spawned: int) -> dict[str, Any]:
    ranks = {"fork": forked, "spawn": spawned}
    return {"limits": lambda method: (Limit(ranks[method], "Memory: little is free."),)}


def more(processes: int) -> dict[str, Any]:
    found = (Limit(1, "Memory."), Limit(processes, "Processes: ulimit -u is low."))
    return {"limits": lambda method: found}


def ulimit(soft: int, hard: int) -> dict[str, Any]:
    return {"rlimit": lambda name: (soft, hard)}


def quota(version: int, quota: str, usable: int = 8) -> dict[str, Any]:
    files = {"sys/fs/cgroup/cpu.max": f"{quota} 100000"}
    if version == 1:
        files = {f"sys/fs/cgroup/cpu/cpu.cfs_{n}_us": t for n, t in (("quota", quota),)}
        files["sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000"
    return {"files": files, "cores": lambda: (usable, 8)}


def locked(*, rdma: bool, soft: int) -> dict[str, Any]:
    return {"files": {"sys/class/infiniband/x/y": ""} if rdma else {}, **ulimit(soft, soft)}


def read_only(*paths: str, **variables: str) -> dict[str, Any]:
    """Make these directories read-only, or all if none is given."""
    locked_paths = set(paths)
    return {
        "environ": variables,
        "writable": lambda path: bool(locked_paths) and str(path) not in locked_paths,
    }


CASES: list[Case] = [
    (machine.shared_memory, free(1), "broken", "1 MiB free"),
    (machine.shared_memory, free(64), "warning", "64 MiB free"),
    (machine.shared_memory, free(1024), "fine", "1 GiB free"),
    (machine.shared_memory, {"disk_space": lambda path: None}, "skipped", ""),
    (machine.shared_memory, read_only(), "broken", "can't be written to"),
    (machine.shared_memory, {**read_only(), **free(0)}, "broken", "is full"),
    (machine.ranks, room_for(1000, 50), "fine", "1,000 forked"),
    (machine.ranks, room_for(50, 3), "warning", "3 spawned"),
    (machine.ranks, room_for(1, 0), "broken", ""),
    (machine.temporary, {}, "fine", "tmp"),
    (machine.temporary, read_only(), "broken", "tmp"),
    (machine.temporary, read_only("/gone", TMPDIR="/gone"), "warning", "set by TMPDIR"),
    (machine.temporary, read_only(TMPDIR="/gone"), "broken", "/gone"),
    (machine.temporary, {"disk_space": lambda path: DiskSpace(100, 100)}, "warning", "100 B free"),
    (machine.open_files, ulimit(1024, 524288), "fine", "1,024 at most, 524,288 on request"),
    (machine.open_files, ulimit(256, 4096), "warning", "256"),
    (machine.open_files, ulimit(64, 64), "broken", "64"),
    (machine.open_files, {"rlimit": lambda name: None}, "skipped", "no such limit"),
    (machine.processes, more(30000), "fine", "30,000 ranks"),
    (machine.processes, more(100), "warning", "100 ranks"),
    (machine.processes, more(3), "broken", "3 ranks"),
    (machine.locked_memory, locked(rdma=False, soft=8 << 20), "fine", "8 MiB"),
    (machine.locked_memory, locked(rdma=True, soft=8 << 20), "warning", "RDMA"),
    (machine.cores, quota(2, "max", 4), "fine", "4 of 8 (an affinity mask"),
    (machine.cores, quota(2, "max", 1), "warning", "1 of 8"),
    (machine.cores, quota(2, "150000"), "warning", "a quota of 1.5"),
    (machine.cores, quota(1, "200000"), "warning", "a quota of 2"),
]


def test_resources_of_a_machine(make_system: Any, assert_finding: Any) -> None:
    for check, changes, level, words in CASES:
        assert_finding(check(make_system(**changes)), level, words)
