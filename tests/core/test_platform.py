"""What the system says, by Linux's own way and by the way of other systems, which runs here too."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import torch.distributed
from forked import in_a_child
from helpers import wait_until

from distdemo.errors import UsageError
from distdemo.launcher.limits import limits
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.start_method import choose
from distdemo.launcher.torch_import import load_torch
from distdemo.platform.linux import COLLAPSE, Linux
from distdemo.platform.portable import Platform, TcpSocket

BOTH = pytest.mark.parametrize("system", [Linux(), Platform()], ids=["linux", "portable"])
ORPHAN = """\
import os, sys
from distdemo.platform.portable import Platform
if os.fork() == 0:
    Platform().die_with_parent()
    print(os.getpid(), flush=True)
    sys.stdin.read()
else:
    os._exit(0 if sys.stdin.readline() else 1)
"""


@BOTH
def test_a_shared_file_is_opened_by_its_path_and_leaves_nothing(system, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = system.shared_file("notes")
    os.write(file.fd, b"text")
    with system.open_shared(file.path) as opened:
        file.close()
        assert opened.read() == b"text"
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "other").write_text("")
    for path in ("", f"{tmp_path}/other", f"{tmp_path}/distdemo-/../other", "/proc/self/fd/0"):
        with pytest.raises((ValueError, OSError)):
            system.open_shared(path)


@pytest.mark.processes
@BOTH
def test_what_the_system_says_of_a_child(system):
    env = {"RANK": "3", "EMPTY": "", "ODD": "a=b \udcff"}
    with subprocess.Popen(["cat", "-u", "-"], stdin=subprocess.PIPE, env=env) as child:
        wait_until(lambda: system.about(child.pid, "name") == "cat")
        assert child.pid in system.children(os.getpid())
        assert system.owner(child.pid) == os.geteuid()
        assert Path(system.about(child.pid, "cwd")).samefile(Path.cwd())
        assert system.about(child.pid, "exe").endswith(("cat", "coreutils"))
        processes = {process.pid: process for process in system.processes()}
        seen = processes[child.pid]
        assert (seen.parent, seen.user) == (os.getpid(), os.geteuid())
        assert (seen.words, seen.environ) == (("cat", "-u", "-"), env)
        assert seen.started >= processes[os.getpid()].started
        child.kill()
        assert wait_until(lambda: child.pid not in {each.pid for each in system.processes()})
    assert child.pid not in system.children(os.getpid())
    assert system.owner(child.pid) is None
    assert system.about(child.pid, "status") == ""
    assert system.processor_times([child.pid]) == {}


@pytest.mark.processes
def test_a_long_environment_is_read_in_part(monkeypatch):
    monkeypatch.setattr("distdemo.platform.linux.MAX_ENVIRON", 10)
    env = {"RANK": "3", "OTHER": "cut off"}
    with subprocess.Popen(["cat", "/dev/stdin"], stdin=subprocess.PIPE, env=env) as child:
        wait_until(lambda: Linux().about(child.pid, "name") == "cat")
        (seen,) = [process for process in Linux().processes() if process.pid == child.pid]
        assert (seen.words, seen.environ) == (("cat", "/dev/s"), {"RANK": "3"})
        child.kill()


@BOTH
def test_tcp_sockets_and_who_shares_them(system):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            own = system.tcp_sockets([os.getpid()])[os.getpid()]
            local = client.getsockname()[1]
    ends = {(end.local[1], end.remote[1], end.listens) for end in own.values()}
    assert {(port, 0, True), (local, port, False)} <= ends
    assert all(isinstance(end, TcpSocket) for end in own.values())


@BOTH
def test_huge_pages_hold_the_same_data_also_in_a_fork(system):
    size = 16 << 20
    data = bytearray(range(256)) * (size // 256)
    system.use_huge_pages()

    def change_one_byte() -> None:
        assert data == bytearray(range(256)) * (size // 256)
        data[0] = 1

    in_a_child(change_one_byte)
    assert data == bytearray(range(256)) * (size // 256)


def test_the_kernel_makes_huge_pages():
    def huge() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))

    data = bytearray(16 << 20)
    memory = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(bytes(4 << 20))
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    aligned = -start % (2 << 20) + start
    if ctypes.CDLL(None).madvise(ctypes.c_void_p(aligned), ctypes.c_size_t(2 << 20), COLLAPSE):
        pytest.skip("needs MADV_COLLAPSE, which came with Linux 6.1")
    before = huge()
    Linux().use_huge_pages()
    assert huge() >= before + (8 << 10), len(data)  # KiB; nearly all of the data


def test_both_ways_agree():
    linux = Linux()
    portable = Platform()
    assert set(linux.ip_addresses()) == set(portable.ip_addresses())
    assert set(linux.usable_cpus()) <= set(portable.usable_cpus())
    reads = [system.busy_s(linux.usable_cpus()) for system in (linux, portable, linux)]
    busy = [round(read, 2) for read in reads if read is not None]
    assert (len(busy), busy) == (3, sorted(busy))  # it only grows
    assert linux.busy_s((10_000,)) is portable.busy_s((10_000,)) is None
    memory = psutil.virtual_memory().total
    free = [system.free_memory() for system in (linux, portable)]
    assert all(each is not None and 0 <= each <= memory for each in free)
    assert linux.loopback_interface() == portable.loopback_interface()
    assert linux.connects_lazily
    assert not portable.connects_lazily


@pytest.mark.processes
def test_a_process_dies_with_its_parent_where_the_kernel_does_not_see_to_it():
    line = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        assert Platform().owner(orphan) is not None
        parent.kill()
        parent.wait()
        assert parent.stdout.read() == b""  # the orphan has exited, too
        assert parent.returncode == -signal.SIGKILL


def test_what_a_system_lacks_is_named_before_a_rank_starts(command, monkeypatch):
    monkeypatch.setattr("distdemo.warm.command.system", Platform())
    code, out, err = command("warm")
    assert (code, out) == (2, "")
    assert err.startswith("distdemo warm is for Linux.\n")


def test_ranks_are_spawned_and_connect_at_once_where_linux_is_not(monkeypatch):
    assert WorldSpec(2, lazy=True).connects_lazily
    monkeypatch.setattr("distdemo.platform.system", Platform())
    assert not WorldSpec(2, lazy=True).connects_lazily
    monkeypatch.setattr("distdemo.launcher.start_method.system", Platform())
    assert choose("auto", "cpu").name == "spawn"
    assert choose("fork", "cpu").name == "fork"
    monkeypatch.setattr("distdemo.launcher.limits.system", Platform())
    memory, *_ = limits(WorldSpec(2))
    assert "180 MiB per rank" in memory.why


@pytest.mark.processes
def test_a_torch_without_distributed_is_named():
    in_a_child(load_without_distributed)


def load_without_distributed():
    vars(torch.distributed)["is_available"] = lambda: False
    del sys.modules["torch.multiprocessing"]
    with pytest.raises(UsageError, match="This torch has no"):
        load_torch()


def test_a_request_to_die_can_be_cancelled():
    system = Platform()
    system.die_with_parent(signal.SIGKILL)
    assert system._watcher is not None
    system.die_with_parent(0)
    assert system._watcher is None
