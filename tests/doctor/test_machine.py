"""Memory, limits, cores, clock and containers of machines that never were."""

from __future__ import annotations

from typing import Any

import pytest

from distdemo.doctor import machine
from distdemo.doctor.system import Clock, Room, TorchFacts
from distdemo.launcher.limits import UNLIMITED, Limit


@pytest.mark.parametrize(
    ("free", "level"), [(1, "broken"), (15, "broken"), (64, "warning"), (1024, "fine")]
)
def test_shared_memory_is_large_enough(
    made: Any, explained: Any, memory_of: Any, free: int, level: str
) -> None:
    seen = machine.shared_memory(made(room=memory_of(free)))
    explained(seen, level, "MiB" if free < 1024 else "GiB")


def test_shared_memory_is_there_and_writable(made: Any, explained: Any, memory_of: Any) -> None:
    explained(machine.shared_memory(made(room=lambda path: None)), "skipped")
    shut = made(writable=lambda path: False)
    explained(machine.shared_memory(shut), "broken", "can't be written to")
    full = made(writable=lambda path: False, room=memory_of(0))
    explained(machine.shared_memory(full), "broken", "is full")


@pytest.mark.parametrize(
    ("forked", "spawned", "level"),
    [(1000, 50, "fine"), (50, 3, "warning"), (1, 0, "broken"), (UNLIMITED, UNLIMITED, "fine")],
)
def test_memory_is_counted_in_ranks(
    made: Any, explained: Any, forked: int, spawned: int, level: str
) -> None:
    ranks = {"fork": forked, "spawn": spawned}
    around = made(limits=lambda method: (Limit(ranks[method], "Memory: little is free."),))
    explained(machine.ranks(around), level)


@pytest.mark.parametrize(("mode", "level"), [("0", "fine"), ("1", "fine"), ("2", "warning")])
def test_overcommitment(made: Any, explained: Any, mode: str, level: str) -> None:
    explained(machine.overcommit(made({"proc/sys/vm/overcommit_memory": mode})), level, mode)


def test_a_system_without_overcommitment_is_left_alone(made: Any, explained: Any) -> None:
    explained(machine.overcommit(made()), "skipped")


def test_the_temporary_directory_can_be_used(made: Any, explained: Any) -> None:
    explained(machine.temporary(made()), "fine", "tmp")
    explained(machine.temporary(made(environ={"TMPDIR": "/scratch"})), "fine", "/scratch")
    explained(machine.temporary(made(writable=lambda path: False)), "broken", "tmp")
    named = made(environ={"TMPDIR": "/gone"}, writable=lambda path: str(path) != "/gone")
    explained(machine.temporary(named), "warning", "which TMPDIR names")
    neither = made(environ={"TMPDIR": "/gone"}, writable=lambda path: False)
    explained(machine.temporary(neither), "broken", "/gone")
    explained(machine.temporary(made(room=lambda path: Room(100, 100))), "warning", "100 B free")


# ----------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("limit", "level", "words"),
    [
        ((1024, 524288), "fine", "1,024 at most, 524,288 on request"),
        ((-1, -1), "fine", "unlimited"),
        ((256, 4096), "warning", "256"),
        ((512, 512), "warning", "512"),
        ((64, 64), "broken", "64"),
        (None, "skipped", "no such limit"),
    ],
)
def test_open_files(made: Any, explained: Any, limit: Any, level: str, words: str) -> None:
    seen = machine.open_files(made(rlimit=lambda name: limit))
    explained(seen, level, words)
    if level == "broken":
        assert "0 ranks at most" in seen.why


@pytest.mark.parametrize(
    ("more", "level"), [(30000, "fine"), (UNLIMITED, "fine"), (100, "warning"), (3, "broken")]
)
def test_processes(made: Any, explained: Any, more: int, level: str) -> None:
    found = (Limit(1, "Memory."), Limit(more, "Processes: ulimit -u is low."))
    explained(machine.processes(made(limits=lambda method: found)), level)


@pytest.mark.parametrize(
    ("soft", "rdma", "level"),
    [(8 << 20, False, "fine"), (8 << 20, True, "warning"), (-1, True, "fine")],
)
def test_locked_memory_matters_where_there_is_rdma(
    made: Any, explained: Any, soft: int, rdma: bool, level: str
) -> None:
    files = {"sys/class/infiniband/mlx5_0/x": ""} if rdma else {}
    explained(machine.locked_memory(made(files, rlimit=lambda name: (soft, soft))), level)


@pytest.mark.parametrize(
    ("scope", "level"), [("", "fine"), ("1", "fine"), ("2", "warning"), ("3", "warning")]
)
def test_ranks_may_read_each_other(made: Any, explained: Any, scope: str, level: str) -> None:
    files = {"proc/sys/kernel/yama/ptrace_scope": scope} if scope else {}
    explained(machine.ptrace(made(files)), level, scope)


# -------------------------------------------------------------------------------- cores and clock


@pytest.mark.parametrize(
    ("usable", "files", "level", "words"),
    [
        (8, {}, "fine", "8"),
        (4, {}, "fine", "4 of 8 (an affinity mask"),
        (1, {}, "warning", "1 of 8"),
        (8, {"sys/fs/cgroup/cpu.max": "max 100000"}, "fine", "8"),
        (8, {"sys/fs/cgroup/cpu.max": "150000 100000"}, "warning", "a quota of 1.5"),
        (
            8,
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            "warning",
            "a quota of 2",
        ),
        (
            8,
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            "fine",
            "8",
        ),
    ],
)
def test_cores_are_what_mask_and_quota_leave(  # noqa: PLR0917 - one case a row
    made: Any, explained: Any, usable: int, files: dict[str, str], level: str, words: str
) -> None:
    explained(machine.cores(made(files, cores=lambda: (usable, 8))), level, words)


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({}, "fine", "takes 8 threads, 4 ranks 32"),
        ({"OMP_NUM_THREADS": "2"}, "fine", "up to 4 ranks"),
        ({"OMP_NUM_THREADS": "2,1"}, "fine", "up to 4 ranks"),
        ({"OMP_NUM_THREADS": "16"}, "warning", "there are 8 cores"),
        ({"OMP_NUM_THREADS": "many"}, "warning", "no number of threads"),
        ({"MKL_NUM_THREADS": "0"}, "warning", "MKL_NUM_THREADS=0"),
    ],
)
def test_threads_a_rank(
    made: Any, explained: Any, environ: dict[str, str], level: str, words: str
) -> None:
    around = made(environ=environ, torch=lambda: TorchFacts("2.13.0", threads=8))
    explained(machine.threads(around), level, words)


@pytest.mark.parametrize(
    ("environ", "level"),
    [
        ({}, "fine"),
        ({"OMP_PROC_BIND": "false"}, "fine"),
        ({"OMP_PROC_BIND": "true"}, "warning"),
        ({"GOMP_CPU_AFFINITY": "0-3"}, "warning"),
        ({"KMP_AFFINITY": "compact"}, "warning"),
    ],
)
def test_threads_that_are_bound(
    made: Any, explained: Any, environ: dict[str, str], level: str
) -> None:
    explained(machine.pinning(made(environ=environ)), level)


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (Clock(synchronised=True, error=0.002), "fine", "within 2 ms"),
        (Clock(synchronised=True, error=9.0), "warning", "may be 9 s off"),
        (Clock(synchronised=False), "warning", "nothing keeps it in step"),
        (None, "skipped", "does not tell"),
    ],
)
def test_the_clock(made: Any, explained: Any, found: Any, level: str, words: str) -> None:
    explained(machine.clock(made(clock=lambda: found)), level, words)


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({}, {}, ""),
        ({".dockerenv": ""}, {}, "Docker"),
        ({"run/.containerenv": ""}, {}, "Podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
        ({"proc/1/cgroup": "1:cpu:/kubepods/x"}, {}, "Kubernetes"),
        ({"proc/1/cgroup": "0::/init.scope"}, {}, ""),
    ],
)
def test_containers_are_known_by_what_they_leave(
    made: Any, explained: Any, files: dict[str, str], environ: dict[str, str], kind: str
) -> None:
    explained(machine.container(made(files, environ)), "fine" if kind else "skipped", kind)
