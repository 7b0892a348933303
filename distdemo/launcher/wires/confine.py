"""Keep what mpiexec opens within this machine: its daemons listen on every interface.

They talk to other hosts' daemons there, of which a world on one machine has none; no setting of
theirs closes those sockets. So the launcher takes a copy of each from its child and binds it to the
loopback device, through which nothing comes from outside. What an MPI library itself would open,
in the ranks, is closed by settings (``backends.mpi_library``).

A daemon listens before it can be bound: from then until the launcher's next look, some hundredths
of a second later, other machines can connect to it, and what they meet is its own check of who
calls. The looks end with the first process that a daemon has started: they all listen by then.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTENING = "0A"  # of /proc/net/tcp: TCP_LISTEN
_LOOPBACK = b"lo\0"
_PIDFD_GETFD = 438  # pidfd_getfd(2), Linux 5.6, the same number on every architecture


class Confinement:
    """Of a session's processes.

    Args:
        session: its id, which is the process id of its first process: a child of this one.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._seen: set[str] = set()

    def tighten(self) -> None:
        """Bind every socket on which they have begun to listen since to the loopback device.

        Where the kernel or the container forbids it, they stay as they were. Costs a look at the
        kernel's tables of sockets, and more only if somebody has begun to listen.
        """
        if not hasattr(os, "pidfd_open"):  # no Linux, or Python was built without it
            return
        new = set(_listening()) - self._seen
        self._seen |= new
        for pid in _processes(self._session) if new else ():
            with suppress(OSError):  # it has ended
                for fd in _sockets(pid, new):
                    _bind(pid, fd)


def _listening() -> Iterator[str]:
    """The inodes of the sockets on which somebody listens."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # a kernel without IPv6
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING:
                    yield fields[9]


def _processes(session: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it has ended
                if os.getsid(int(name)) == session:
                    yield int(name)


def _sockets(pid: int, inodes: set[str]) -> Iterator[int]:
    """The process's descriptors of these sockets."""
    folder = Path("/proc", str(pid), "fd")
    for name in os.listdir(folder):
        with suppress(OSError):  # it was closed meanwhile
            target = str((folder / name).readlink())
            if target.startswith("socket:[") and target[8:-1] in inodes:
                yield int(name)


def _bind(pid: int, fd: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None).syscall(_PIDFD_GETFD, handle, fd, 0)
        if copy >= 0:
            with socket.socket(fileno=copy) as end, suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _LOOPBACK)
    finally:
        os.close(handle)
