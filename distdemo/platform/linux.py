"""Linux: its system calls, ``/proc`` and control groups. Sources: proc(5), cgroups(7)."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import stat
import struct
import sys
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from distdemo.platform.portable import (
    Platform,
    ProcessorTime,
    RunningProcess,
    SharedFile,
    TcpSocket,
    ThreadState,
)

assert sys.platform == "linux"  # type checkers skip what follows for other systems

TRANSPORTS = ("gloo", "pt_gloo", "pt_nccl", "TP_")
"""Beginnings of the names of the threads of gloo, NCCL and TensorPipe."""
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
PDEATHSIG = 1  # PR_SET_PDEATHSIG
GROUP = "/sys/fs/cgroup"
MAX_ENVIRON = 4 << 20  # bytes of an environment or a command line, which any user may make long
_prctl = ctypes.CDLL(None).prctl  # found once, for all forked ranks
_madvise = ctypes.CDLL(None).madvise
COLLAPSE = 25  # MADV_COLLAPSE
_SHARED = re.compile(r"/proc/\d+/fd/\d+")
_LISTENS = "0A"  # TCP_LISTEN in include/net/tcp_states.h
_V4_MAPPED = "0000000000000000FFFF0000"
_READ = {"x86_64": 0, "aarch64": 63}.get(os.uname().machine, -1)  # number of read(2)
_SIOCGIFCONF = 0x8912  # linux/sockios.h: IPv4 addresses of all interfaces
_IFREQ = 40 if struct.calcsize("P") == 8 else 32  # bytes of a struct ifreq: a name, and a union
_MAX_ADDRESSES = 1024


class Linux(Platform):
    """Linux, with ``/proc`` mounted."""

    is_linux = True
    forks_safely = True
    connects_lazily = True

    # ------------------------------------------------------------------------------ shared memory

    def shared_file(self, name: str) -> SharedFile:
        """Return a file in memory: it has no name, and disappears with its last user.

        Others open it through this process's entry in ``/proc``, which only this user can access.
        """
        fd = os.memfd_create(f"distdemo-{name}", os.MFD_CLOEXEC)
        path = f"/proc/{os.getpid()}/fd/{fd}"
        return SharedFile(fd, path, is_named=False, owner=os.getpid())

    def open_shared(self, path: str) -> BinaryIO:
        """Open a descriptor of another process."""
        if not _SHARED.fullmatch(path):
            raise ValueError(f"{path!r} is not a shared file")
        return Path(path).open("r+b", buffering=0)

    # ---------------------------------------------------------------------------------- processes

    def children(self, pid: int) -> list[int]:
        """Return the children of all threads of a process."""
        pids: list[int] = []
        with suppress(OSError, ValueError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        return pids

    def adopt_orphans(self, *, adopts: bool) -> None:
        """Become the nearest ancestor that adopts orphans; see prctl(2)."""
        _prctl(SUBREAPER, int(adopts), 0, 0, 0)

    def die_with_parent(self, number: int = signal.SIGKILL) -> None:
        """Have the kernel send the signal when the thread that started this process exits."""
        _prctl(PDEATHSIG, number, 0, 0, 0)

    def use_huge_pages(self) -> None:
        """Collapse the heap and other private memory; see MADV_COLLAPSE in madvise(2), Linux 6.1.

        A fork then copies one entry of the page table per 2 MiB, instead of 512.
        """
        for line in _text("/proc/self/maps").splitlines():
            addresses, access, *_, inode = line.split()[:5]
            start, end = (int(address, 16) for address in addresses.split("-"))
            if access == "rw-p" and inode == "0" and "stack" not in line:
                _madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), COLLAPSE)

    def exit_descriptor(self, pid: int) -> int | None:
        """Return a pidfd: no child of the process can hold it open. Older than 5.3: None."""
        with suppress(OSError):
            return os.pidfd_open(pid)
        return None

    def send_signal(self, exit_descriptor: int, number: int) -> None:
        """Send a signal through a pidfd, which never means another process."""
        signal.pidfd_send_signal(exit_descriptor, number)

    def peer(self, connection: socket.socket) -> tuple[int, int]:
        """Return who has connected, or listens: what the kernel recorded then."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("iII", credentials)
        return pid, uid

    def thread_ids(self) -> frozenset[str]:
        """Return the ids of all threads, including C libraries'."""
        return frozenset(os.listdir("/proc/self/task"))

    def has_loaded(self, library: str, pid: int | None = None) -> bool:
        """Look for a file of this name among those that the process has mapped."""
        lines = _text(f"/proc/{pid or 'self'}/maps").splitlines()
        return any(line.rpartition("/")[2].startswith(library) for line in lines)

    def processor_times(self, pids: Collection[int]) -> dict[int, ProcessorTime]:
        """Return the times of the threads of these processes, by thread id.

        A process's children that have exited have its negative id. Threads of transports, which
        poll without a pause, are left out. Source: proc_pid_stat(5),
        Documentation/scheduler/sched-stats.rst of Linux.
        """
        times = {}
        for pid in pids:
            with suppress(OSError):  # it has just exited
                _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
                times[-pid] = ProcessorTime(_ticks(fields.split()[13:15]), 0)
                for task in Path(f"/proc/{pid}/task").iterdir():
                    name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
                    if not name.startswith(TRANSPORTS):
                        runs = 0
                        with suppress(OSError, ValueError, IndexError):  # not in every kernel
                            runs = int((task / "schedstat").read_text().split()[2])
                        times[int(task.name)] = ProcessorTime(_ticks(fields.split()[11:13]), runs)
        return times

    def processes(self) -> Iterator[RunningProcess]:
        """Yield them without zombies; of a long environment or command line, the beginning."""
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with suppress(OSError, ValueError, IndexError, StopIteration):  # it has just exited
                    process = _process(int(name))
                    if process is not None:
                        yield process

    def about(self, pid: int, what: Literal["name", "exe", "cwd", "status"]) -> str:
        """Return what psutil says; the directory as a link that leads into another container."""
        return f"/proc/{pid}/cwd" if what == "cwd" else super().about(pid, what)

    def tcp_sockets(self, pids: Collection[int]) -> dict[int, dict[Hashable, TcpSocket]]:
        """Return the sockets by inode, from the table of the first process's network namespace."""
        table = _tcp(next(iter(pids)))
        sockets: dict[int, dict[Hashable, TcpSocket]] = {}
        for pid in pids:
            inodes = {link[8:-1] for link in _links(pid) if link.startswith("socket:[")}
            sockets[pid] = {inode: table[inode] for inode in inodes & table.keys()}
        return sockets

    def listening(self, pid: int) -> dict[Hashable, tuple[str, int]]:
        """Return where sockets of the process's network namespace listen, by inode."""
        return {inode: end.local for inode, end in _tcp(pid).items() if end.listens}

    def shares_network(self, pid: int) -> bool:
        """Compare the network namespaces."""
        own, other = (_link(f"/proc/{each}/ns/net") for each in ("self", pid))
        return other != "" and own == other

    def thread_names(self, pid: int) -> frozenset[str]:
        """Return the names, of which the kernel keeps 15 characters."""
        names = set()
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                names.add(_text(f"{task}/comm").strip())
        return frozenset(names)

    def open_pipe(self, pid: int, name: str) -> int | None:
        """Open the pipe through the process's descriptor, without waiting for its reader."""
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                place = f"/proc/{pid}/fd/{fd}"
                if _link(place).rpartition("/")[2] != name:
                    continue
                with suppress(OSError):
                    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
                    pipe = os.open(place, flags)
                    if stat.S_ISFIFO(os.fstat(pipe).st_mode):
                        return pipe
                    os.close(pipe)
        return None

    def path_of(self, pid: int, path: str) -> str:
        """Return a path that leads into the process's container, if it has one."""
        place = "root" if path.startswith("/") else "cwd"
        return f"/proc/{pid}/{place}/{path.lstrip('/')}"

    def thread_state(self, pid: int, tid: int) -> ThreadState:
        """Return the state, the kernel function, the context switches, and the file of a read."""
        place = f"/proc/{pid}/task/{tid}"
        state = path = ""
        switches = -1
        with suppress(OSError, IndexError, ValueError):
            state = Path(place, "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            lines = Path(place, "status").read_text(errors="replace").splitlines()
            switches = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
        function = _text(f"{place}/wchan").strip().removeprefix("0")
        with suppress(OSError, IndexError, ValueError):
            words = _text(f"{place}/syscall").split()
            if int(words[0]) == _READ:
                target = os.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")  # noqa: PTH115 - a text
                path = target if target.startswith("/") else ""
        return ThreadState(state, function, switches, path)

    def ptrace_scope(self, pid: int) -> str:
        """Return Yama's ptrace_scope if the process's memory can't be opened, and it may be why."""
        with suppress(OSError):
            Path(f"/proc/{pid}/mem").open("rb").close()
            return ""
        scope = _text("/proc/sys/kernel/yama/ptrace_scope").strip()
        return scope if scope != "0" else ""

    def uses_gpu(self, pid: int) -> bool:
        """Look for an open device of NVIDIA's driver."""
        return any(link.startswith("/dev/nvidia") for link in _links(pid))

    # -------------------------------------------------------------------------- memory and limits

    def free_memory(self) -> int | None:
        """Return the bytes that new processes can use, on the machine or in its container.

        A container's page cache counts as used until the memory is needed, so its inactive part is
        added to the free memory.
        """
        free = None
        for line in _text("/proc/meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        most = _number(f"{GROUP}/memory.max")
        now = _number(f"{GROUP}/memory.current")
        if most is None or now is None:
            return free
        stat = _text(f"{GROUP}/memory.stat").splitlines()
        cached = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
        left = max(0, most - now + cached)
        return left if free is None else min(free, left)

    def process_limit(self) -> tuple[int, int] | None:
        """Return pids.max and pids.current of the control group."""
        most = _number(f"{GROUP}/pids.max")
        return None if most is None else (most, _number(f"{GROUP}/pids.current") or 0)

    def data_bytes(self) -> int | None:
        """Return VmData of proc_pid_status(5)."""
        lines = _text("/proc/self/status").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmData")))

    # ---------------------------------------------------------------------------------- processors

    def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs of this process's affinity."""
        return tuple(sorted(os.sched_getaffinity(0)))

    def cpu_limit(self) -> float | None:
        """Return the quota of the control group, version 2 or 1."""
        limit = _text(f"{GROUP}/cpu.max").split()
        if not limit:
            files = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
            limit = [word for file in files for word in _text(f"{GROUP}/{file}").split()]
        if len(limit) == 2 and all(word.isdigit() and int(word) for word in limit):  # not max or -1
            return int(limit[0]) / int(limit[1])
        return None

    def busy_s(self, cpus: Collection[int]) -> float | None:
        """Add up the lines of these CPUs in ``/proc/stat``."""
        text = _text("/proc/stat")
        lines = {line.partition(" ")[0]: line.split()[1:] for line in text.splitlines()}
        if not cpus or not all(f"cpu{cpu}" in lines for cpu in cpus):
            return None
        total = 0.0
        for cpu in cpus:
            user_nice_system = lines[f"cpu{cpu}"][:3]
            total += _ticks([*user_nice_system, *lines[f"cpu{cpu}"][7:8]])  # old kernels: no steal
        return total

    def processor_model(self) -> str:
        """Return the model of the first CPU."""
        lines = _text("/proc/cpuinfo").splitlines()
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(models, "")

    # ------------------------------------------------------------------------------------- network

    def ip_addresses(self) -> list[tuple[str, str]]:
        """Return IPv4 addresses from ``SIOCGIFCONF``, which includes secondary ones, and IPv6."""
        import array
        import fcntl

        buffer = array.array("B", bytes(_MAX_ADDRESSES * _IFREQ))
        request = struct.pack("iP", buffer.buffer_info()[1], buffer.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            reply = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, request)
        length = struct.unpack("iP", reply)[0]
        entries = [buffer[start : start + _IFREQ].tobytes() for start in range(0, length, _IFREQ)]
        words = [line.split() for line in _text("/proc/net/if_inet6").splitlines()]
        return [
            *((e[:16].partition(b"\0")[0].decode(), socket.inet_ntoa(e[20:24])) for e in entries),
            *((w[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(w[0]))) for w in words),
        ]


def _text(path: str) -> str:
    """Return the content of a file of the kernel; empty if it can't be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _process(pid: int) -> RunningProcess | None:
    """Return a process, or None for a zombie, which has no command line.

    A program that shows a text as its command line may separate its words by spaces. Sources:
    proc_pid_stat(5), proc_pid_status(5), proc_pid_environ(5), proc_pid_cmdline(5).
    """
    place = Path(f"/proc/{pid}")
    fields = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    lines = (place / "status").read_text(errors="replace").splitlines()
    user = next(int(line.split()[2]) for line in lines if line.startswith("Uid:"))
    environ = None
    with suppress(PermissionError):
        entries = _beginning(place / "environ").split("\0")[:-1]  # the last one may be cut off
        pairs = (entry.partition("=") for entry in entries)
        environ = {key: value for key, sign, value in pairs if key and sign}
    line = _beginning(place / "cmdline").removesuffix("\0")
    words = line.split("\0" if "\0" in line else " ") if line else ()
    return RunningProcess(pid, int(fields[1]), _ticks(fields[19:20]), user, tuple(words), environ)


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return os.fsdecode(file.read(MAX_ENVIRON))


def _number(path: str) -> int | None:
    """Return the number in a one-line file, or None (``max`` means no limit)."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _links(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to."""
    with suppress(OSError):
        return [_link(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return []


def _link(path: str) -> str:
    """Return what a link of the kernel leads to; empty if it is gone."""
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - a text
    return ""


def _tcp(pid: int) -> dict[str, TcpSocket]:
    """Return the TCP sockets of a process's network namespace, by inode."""
    table: dict[str, TcpSocket] = {}
    for name in ("tcp", "tcp6"):
        for line in _text(f"/proc/{pid}/net/{name}").splitlines()[1:]:
            words = line.split()
            local, remote = map(_address, words[1:3])
            table[words[9]] = TcpSocket(local, remote, words[3] == _LISTENS)
    return table


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port that ``0100007F:1F90`` stands for."""
    host, _, port = text.removeprefix(_V4_MAPPED).partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)), int(port, 16)


def _ticks(fields: Sequence[str]) -> float:
    """Return the seconds that these numbers of clock ticks are together."""
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")
