"""Keep what mpiexec opens within this machine: its daemons listen on every interface.

They talk to other hosts' daemons there, of which a world on one machine has none; no setting of
theirs closes those sockets. So the launcher takes a copy of each from its child and binds it to the
loopback device, through which nothing comes from outside. What an MPI library itself would open,
in the ranks, is closed by settings (``backends.mpi_library``).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTENING = "0A"  # of /proc/net/tcp: TCP_LISTEN
_LOOPBACK = b"lo\0"
_PIDFD_GETFD = 438  # pidfd_getfd(2), Linux 5.6, the same number on every architecture


def confine(session: int) -> None:
    """Bind every listening socket of a session's processes to the loopback device.

    Where the kernel or the container forbids it, they stay as they were.

    Args:
        session: its id, which is the process id of its first process: a child of this one.
    """
    if sys.platform != "linux":
        return
    listening = set(_listening())
    for pid in _processes(session):
        with suppress(OSError):  # it has ended
            for fd in _sockets(pid, listening):
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
