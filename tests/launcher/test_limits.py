from __future__ import annotations

import os
import resource
import socket

import pytest

from distdemo.errors import UsageError
from distdemo.launcher import limits
from distdemo.launcher.limits import MIB, check_loopback, check_machine, free_memory, open_files
from distdemo.launcher.records import WorldSpec

Machine = dict[str, str]

GROUP = "/sys/fs/cgroup"
NEEDED = 100 * limits.FILES_PER_RANK + limits.FILES_OF_ITS_OWN + 6


def refusal(world_size: int, data: int = 0, start_method: str = "auto") -> UsageError:
    with pytest.raises(UsageError) as caught:
        check_machine(WorldSpec(world_size, start_method=start_method), data)
    error = caught.value
    assert error.what
    assert error.why
    assert error.hint
    return error


def test_a_machine_that_tells_nothing_refuses_nothing(machine: Machine) -> None:
    assert machine == {}
    check_machine(WorldSpec(100_000), data_bytes=10**15)


# -------------------------------------------------------------------------------------- memory


def test_memory_is_what_the_machine_has_left(machine: Machine) -> None:
    machine["/proc/meminfo"] = "MemTotal: 9999 kB\nMemAvailable:   1024 kB\nSwapFree: 5 kB"
    assert free_memory() == MIB


def test_memory_is_what_the_control_group_leaves_if_that_is_less(machine: Machine) -> None:
    machine["/proc/meminfo"] = "MemAvailable: 999999999 kB"
    machine[f"{GROUP}/memory.max"] = str(100 * MIB)
    machine[f"{GROUP}/memory.current"] = str(30 * MIB)
    assert free_memory() == 70 * MIB


def test_the_first_version_of_control_groups_counts_too(machine: Machine) -> None:
    machine[f"{GROUP}/memory/memory.limit_in_bytes"] = str(100 * MIB)
    machine[f"{GROUP}/memory/memory.usage_in_bytes"] = str(101 * MIB)
    assert free_memory() == 0


def test_a_control_group_without_a_limit_sets_none(machine: Machine) -> None:
    machine[f"{GROUP}/memory.max"] = "max"
    machine[f"{GROUP}/memory.current"] = str(30 * MIB)
    machine["/proc/meminfo"] = "MemAvailable: 1024 kB"
    assert free_memory() == MIB


def test_files_that_the_kernel_only_keeps_in_a_cache_take_no_memory_away(machine: Machine) -> None:
    # memory.current counts the page cache; a container that has read a lot stands at its limit.
    machine[f"{GROUP}/memory.max"] = str(1000 * MIB)
    machine[f"{GROUP}/memory.current"] = str(1000 * MIB)
    machine[f"{GROUP}/memory.stat"] = f"anon {200 * MIB}\ninactive_file {700 * MIB}\n"
    assert free_memory() >= 700 * MIB


def test_too_little_memory_for_the_ranks_is_told_with_the_number_that_fits(
    machine: Machine,
) -> None:
    machine["/proc/meminfo"] = f"MemAvailable: {100 * 1024} kB"
    error = refusal(64)
    assert error.what == "This machine can't hold 64 ranks: 10 at most."
    assert error.why == "Memory: 100 MiB free, about 10 MiB a rank."
    assert "at most 10" in error.hint
    check_machine(WorldSpec(10))


def test_a_spawned_rank_needs_much_more_memory(machine: Machine) -> None:
    machine["/proc/meminfo"] = f"MemAvailable: {1000 * 1024} kB"
    check_machine(WorldSpec(64))
    assert "Memory" in refusal(64, start_method="spawn").why


def test_too_little_memory_for_the_tensors_is_told_apart(machine: Machine) -> None:
    machine["/proc/meminfo"] = f"MemAvailable: {100 * 1024} kB"
    check_machine(WorldSpec(4), 60 * MIB)
    error = refusal(4, 61 * MIB)
    assert "The tensors of 4 ranks need 61 MiB" in error.what
    assert "60 MiB" in error.why
    assert "--shape" in error.hint


# ----------------------------------------------------------------------------------- processes


def test_the_kernel_s_limits_hold_for_all_that_runs(machine: Machine) -> None:
    machine["/proc/loadavg"] = "0.10 0.20 0.30 2/300 4711"
    machine["/proc/sys/kernel/pid_max"] = "400"
    machine["/proc/sys/kernel/threads-max"] = "100000"
    check_machine(WorldSpec(100))
    error = refusal(101)
    assert "100 at most" in error.what
    assert error.why == "Processes: kernel.pid_max is 400."


def test_the_control_group_s_limit_holds_for_what_runs_in_the_group(machine: Machine) -> None:
    # A container sees all of the host's threads in /proc/loadavg, thousands of them.
    machine["/proc/loadavg"] = "0.10 0.20 0.30 2/3000 4711"
    machine[f"{GROUP}/pids.max"] = "1000"
    machine[f"{GROUP}/pids.current"] = "10"
    check_machine(WorldSpec(900))
    assert "pids.max is 1,000" in refusal(991).why


def test_the_user_s_limit_holds_for_the_user_s_own_processes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other users' threads, and the kernel's, are none of its business.
    machine["/proc/loadavg"] = "0.10 0.20 0.30 2/5000 4711"
    monkeypatch.setattr(limits, "_user_processes", lambda: 4096)
    check_machine(WorldSpec(4))


def test_a_system_without_proc_can_still_have_a_limit_for_the_user(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # macOS, where a limit is the rule.
    def missing(path: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", path)

    assert machine == {}
    monkeypatch.setattr(os, "scandir", missing)
    monkeypatch.setattr(limits, "_user_processes", lambda: 2666)
    check_machine(WorldSpec(4))


def test_a_limit_that_is_used_up_leaves_no_rank_and_no_negative_number(machine: Machine) -> None:
    machine["/proc/loadavg"] = "0.10 0.20 0.30 2/3000 4711"
    machine["/proc/sys/kernel/threads-max"] = "2000"
    error = refusal(1)
    assert "-" not in error.what
    assert "0 at most" in error.what


# ---------------------------------------------------------------------------------- open files


def test_open_files_limit_the_ranks(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine == {}
    monkeypatch.setattr(limits, "_open_files", lambda: 1064)
    check_machine(WorldSpec(250))
    assert "Open files: 1,064 at most" in refusal(251).why


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (64, 100_000, NEEDED),
        (64, 80, 80),  # as many as there may be
        (64, resource.RLIM_INFINITY, NEEDED),
        (100_000, 100_000, None),  # there are enough
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_soft_limit_on_open_files_is_raised_only_as_far_as_needed(
    soft: int, hard: int, after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(limits, "_files_in_use", lambda: 6)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: asked.append(pair))
    with open_files(WorldSpec(100)):
        assert asked == ([] if after is None else [(after, hard)])
    assert asked == ([] if after is None else [(after, hard), (soft, hard)])


# ------------------------------------------------------------------------------------ loopback


def test_a_machine_without_a_loopback_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loopback()

    class Unreachable(socket.socket):
        def connect(self, address: object) -> None:
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", Unreachable)
    with pytest.raises(UsageError) as caught:
        check_loopback()
    assert "could not reach each other" in caught.value.what
    assert "unreachable" in caught.value.why
    assert "ip link" in caught.value.hint


def test_this_very_machine_can_hold_a_world() -> None:
    check_machine(WorldSpec(1))
    assert all(limit.ranks >= 1 and limit.why for limit in limits.limits(WorldSpec(1)))
