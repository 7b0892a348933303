"""The interface, and what is the same on every system: Python's own functions and psutil.

psutil is imported in the functions that use it. `Linux` replaces those that run before the first
rank.
"""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple

if TYPE_CHECKING:
    import socket

PARENT_S = 0.5  # between two looks whether the parent is still there
PREFIX = "distdemo-"
"""Start of the names of files that processes share."""
_V4_MAPPED = "::ffff:"


@dataclass(frozen=True, slots=True)
class SharedFile:
    """File whose memory the processes of this user can share.

    Attributes:
        fd: Its descriptor in the process that has created it.
        path: Path by which others open it.
        is_named: True if it stays in a folder until it is closed, even if its owner is killed.
        owner: Process that has created it.
    """

    fd: int
    path: str
    is_named: bool
    owner: int

    def close(self) -> None:
        """Close the file, and remove its name. Processes that have opened it keep it."""
        os.close(self.fd)
        if self.is_named and self.owner == os.getpid():  # not in a fork
            with suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108 - pathlib is slow to import


class ProcessorTime(NamedTuple):
    """Processor time of a thread or process.

    Attributes:
        seconds: Total time.
        runs: Number of times that it got the processor; 0 if unknown.
    """

    seconds: float
    runs: int


class RunningProcess(NamedTuple):
    """Process of this machine.

    Attributes:
        started: Time of its start, in seconds since a moment that is the same for all processes.
        user: Number of its effective user.
        words: Its command line.
        environ: Environment that it began with; None if the system hides it.
    """

    pid: int
    parent: int
    started: float
    user: int
    words: tuple[str, ...]
    environ: Mapping[str, str] | None


class TcpSocket(NamedTuple):
    """TCP socket: both addresses, as host and port."""

    local: tuple[str, int]
    remote: tuple[str, int]
    listens: bool


class ThreadState(NamedTuple):
    """What the kernel says of a thread.

    Attributes:
        state: ``S``; empty if it can't be read.
        function: Kernel function that it sleeps in; empty if it runs, or that can't be read.
        switches: Number of times that it gave up the processor; −1 if unknown.
        path: Path that it reads from, or empty.
    """

    state: str = ""
    function: str = ""
    switches: int = -1
    path: str = ""


class Platform:
    """A system of which only Python and psutil know something: macOS.

    Attributes:
        is_linux: True on Linux.
        forks_safely: True if a process that has loaded torch can be forked. macOS's own libraries
            may have started threads, whose locks a fork would inherit (multiprocessing's
            documentation, on start methods).
        connects_lazily: True if gloo can connect two ranks at their first transfer. torch's
            transport for macOS refuses to (``makeUVDevice`` in GlooDeviceFactory.cpp of 2.8).
    """

    is_linux = False
    forks_safely = False
    connects_lazily = False

    def __init__(self) -> None:
        self._ended: threading.Event | None = None  # set to end the thread below
        self._watcher: threading.Thread | None = None

    # ------------------------------------------------------------------------------ shared memory

    def shared_file(self, name: str) -> SharedFile:
        """Return a new, empty file that processes of this user can map.

        Raises:
            OSError: It can't be created.
        """
        fd, path = tempfile.mkstemp(prefix=f"{PREFIX}{name}-")
        return SharedFile(fd, path, is_named=True, owner=os.getpid())

    def open_shared(self, path: str) -> BinaryIO:
        """Open another process's shared file for reading and writing.

        Raises:
            OSError: It can't be opened.
            ValueError: The path isn't that of a shared file.
        """
        folder, _, name = path.rpartition("/")
        if folder != tempfile.gettempdir() or not name.startswith(PREFIX):
            raise ValueError(f"{path!r} is not a shared file")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        return open(fd, "r+b", buffering=0)  # noqa: PTH123 - the caller closes it

    # ---------------------------------------------------------------------------------- processes

    def children(self, pid: int) -> list[int]:
        """Return the children of a process; empty if the system lists none."""
        import psutil

        with suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []

    def adopt_orphans(self, *, adopts: bool) -> None:
        """Make the descendants whose parents exit children of this process, if possible."""

    def die_with_parent(self, number: int = signal.SIGKILL) -> None:
        """Have this process sent a signal when its parent exits.

        Args:
            number: The signal; 0 cancels an earlier request.
        """
        if self._watcher is not None and self._ended is not None:
            self._ended.set()
            if self._watcher.is_alive():  # not in a fork, which has no such thread
                self._watcher.join()
        self._ended = threading.Event()
        self._watcher = None
        if number:
            args = (os.getppid(), number, self._ended)
            self._watcher = threading.Thread(target=_watch, args=args, daemon=True)
            self._watcher.start()

    def use_huge_pages(self) -> None:
        """Move this process's memory into huge pages, if the system can, for faster forks."""

    def exit_descriptor(self, pid: int) -> int | None:
        """Return a new descriptor that is readable once the process has exited, or None."""
        return None

    def send_signal(self, exit_descriptor: int, number: int) -> None:
        """Send a signal to the process of an exit descriptor.

        Raises:
            ProcessLookupError: It has exited.
        """
        raise ProcessLookupError(errno.ESRCH, "there are no such descriptors on this system")

    def peer(self, connection: socket.socket) -> tuple[int, int]:
        """Return the process and the user of the other side of a local socket."""
        raise PermissionError(errno.ENOTSUP, "this system doesn't say who is at the other end")

    def thread_ids(self) -> frozenset[str]:
        """Return the ids of this process's threads, as far as they are known."""
        return frozenset(str(thread.native_id) for thread in threading.enumerate())

    def has_loaded(self, library: str, pid: int | None = None) -> bool:
        """Return True if a process has loaded a library whose file name begins like this.

        Args:
            library: Beginning of the name.
            pid: The process; this one by default.

        Returns:
            False if the system doesn't say.
        """
        return False

    def processor_times(self, pids: Collection[int]) -> dict[int, ProcessorTime]:
        """Return the processor times of processes, or of their threads, by a number of each."""
        import psutil

        times = {}
        for pid in pids:
            with suppress(psutil.Error):  # it has just exited
                used = psutil.Process(pid).cpu_times()
                times[pid] = ProcessorTime(used.user + used.system, 0)
        return times

    def processes(self) -> Iterator[RunningProcess]:
        """Yield the processes whose command line can be read."""
        import psutil

        for process in psutil.process_iter():
            # It has ended, is someone else's, or has text that isn't a list of variables.
            with suppress(psutil.Error, OSError, ValueError), process.oneshot():
                environ = None
                with suppress(psutil.AccessDenied, PermissionError):
                    environ = process.environ()
                yield RunningProcess(
                    process.pid,
                    process.ppid(),
                    process.create_time(),
                    process.uids().effective,
                    tuple(process.cmdline()),
                    environ,
                )

    def owner(self, pid: int) -> int | None:
        """Return the number of a process's effective user, or None if there is no such process."""
        import psutil

        with suppress(psutil.Error):
            return int(psutil.Process(pid).uids().effective)
        return None

    def about(self, pid: int, what: Literal["name", "exe", "cwd", "status"]) -> str:
        """Return what psutil says of a process; empty if it has ended or can't be read."""
        import psutil

        with suppress(psutil.Error):
            return str(psutil.Process(pid).as_dict([what], ad_value="")[what])
        return ""

    def tcp_sockets(self, pids: Collection[int]) -> dict[int, dict[Hashable, TcpSocket]]:
        """Return the TCP sockets of each process; one that several have has one key."""
        import psutil

        sockets: dict[int, dict[Hashable, TcpSocket]] = {pid: {} for pid in pids}
        for pid, own in sockets.items():
            with suppress(psutil.Error):
                for end in psutil.Process(pid).net_connections(kind="tcp"):
                    local, remote = (
                        (address.ip.removeprefix(_V4_MAPPED), address.port) if address else ("", 0)
                        for address in (end.laddr, end.raddr)
                    )
                    entry = TcpSocket(local, remote, end.status == psutil.CONN_LISTEN)
                    own[entry] = entry
        return sockets

    def listening(self, pid: int) -> dict[Hashable, tuple[str, int]]:
        """Return where a process's network is listened on, also by others, by the keys above.

        Empty if the system doesn't list what others have.
        """
        return {}

    def shares_network(self, pid: int) -> bool:
        """Return True if a process has the network of this one."""
        return True

    def thread_names(self, pid: int) -> frozenset[str]:
        """Return the names of a process's threads; empty if the system has none."""
        return frozenset()

    def open_pipe(self, pid: int, name: str) -> int | None:
        """Return a descriptor for writing of the named pipe that a process has open, or None.

        Args:
            pid: The process.
            name: File name of the pipe.
        """
        return None

    def path_of(self, pid: int, path: str) -> str:
        """Return this process's path of a file that another one names, or an empty text."""
        return path if os.path.isabs(path) else ""  # noqa: PTH117 - pathlib is slow to import

    def thread_state(self, pid: int, tid: int) -> ThreadState:
        """Return what the kernel says of a thread, as far as it can be read."""
        return ThreadState()

    def ptrace_scope(self, pid: int) -> str:
        """Return the system's rule that forbids reading the process's memory, or empty."""
        return ""

    def uses_gpu(self, pid: int) -> bool:
        """Return True if a process uses an NVIDIA GPU."""
        return False

    # -------------------------------------------------------------------------- memory and limits

    def free_memory(self) -> int | None:
        """Return the bytes that new processes can use; None if unknown."""
        import psutil

        return int(psutil.virtual_memory().available)

    def process_limit(self) -> tuple[int, int] | None:
        """Return the container's limit on processes and threads, and how many there are."""
        return None

    def data_bytes(self) -> int | None:
        """Return the private memory that RLIMIT_DATA limits in this process; None: it limits none.

        macOS counts neither what malloc allocates nor what is mapped.
        """
        return None

    # ---------------------------------------------------------------------------------- processors

    def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs that this process may run on."""
        return tuple(range(os.cpu_count() or 1))

    def cpu_limit(self) -> float | None:
        """Return the container's limit on CPU time, in cores; None if there is none."""
        return None

    def busy_s(self, cpus: Collection[int]) -> float | None:
        """Return the seconds that these CPUs have run programs, or were taken by a hypervisor.

        Time in interrupts is left out: the kernel's part of the ranks' own messages.

        Args:
            cpus: CPUs to add up.

        Returns:
            Seconds since the system started; None if a CPU is missing.
        """
        import psutil

        known = psutil.cpu_times(percpu=True)
        if not cpus or max(cpus) >= len(known):
            return None
        times = [known[cpu] for cpu in cpus]
        fields = ("user", "nice", "system", "steal")
        return float(sum(getattr(cpu, name, 0.0) for cpu in times for name in fields))

    def processor_model(self) -> str:
        """Return the processor's model; empty if unknown."""
        return ""

    # ------------------------------------------------------------------------------------- network

    def loopback_interface(self) -> str:
        """Return the loopback interface: lo, or lo0 on macOS; empty if there is none."""
        import socket

        names = [name for _, name in socket.if_nameindex()]
        return next((name for name in ("lo", "lo0") if name in names), "")

    def ip_addresses(self) -> list[tuple[str, str]]:
        """Return interfaces and addresses, IPv4 first; an interface has an entry for each."""
        import socket

        import psutil

        known = psutil.net_if_addrs()
        return [
            (name, entry.address.partition("%")[0])
            for family in (socket.AF_INET, socket.AF_INET6)
            for name, entries in known.items()
            for entry in entries
            if entry.family == family
        ]


def _watch(parent: int, number: int, ended: threading.Event) -> None:
    """Send this process a signal when it has another parent."""
    while not ended.wait(PARENT_S):
        if os.getppid() != parent:
            os.kill(os.getpid(), number)
            return
