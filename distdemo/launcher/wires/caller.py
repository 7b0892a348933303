"""A shim that has called: which rank it stands for, and what mpiexec has told it."""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass
from multiprocessing.connection import Connection

_PATIENCE = 5.0  # seconds that a shim, which has all it needs, gets to say it
_LONGEST = 1 << 24  # bytes of an environment; the kernel allows less
_RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_SHIMS_OWN = frozenset({"LD_LIBRARY_PATH", "PWD", "OLDPWD", "SHLVL", "_"})


@dataclass(frozen=True, slots=True)
class Caller:
    """One shim.

    Attributes:
        rank: the number that mpiexec gave it.
        environment: all of its variables.
        line: the connection to it; the shim leaves when it is closed.
        held: the descriptors that it has handed on.
    """

    rank: int
    environment: dict[str, str]
    line: socket.socket
    held: tuple[int, ...]

    def told(self, before: dict[str, str]) -> dict[str, str]:
        """What mpiexec has added to the environment that it was given, or changed."""
        return {
            name: value
            for name, value in self.environment.items()
            if before.get(name) != value and name not in _SHIMS_OWN
        }

    def sockets(self) -> tuple[tuple[str, Connection], ...]:
        """What the rank speaks to mpiexec through; from now on its holder closes it."""
        return tuple(("PMI_FD", Connection(fd)) for fd in self.held)


def greet(line: socket.socket) -> Caller:
    """Hear a new caller out.

    Raises:
        OSError: it said nothing sensible, or is somebody else's.
        LookupError: mpiexec did not tell it its rank.
    """
    line.settimeout(_PATIENCE)
    _check_owner(line)
    head, held, _, _ = socket.recv_fds(line, 8, 4)
    try:
        environment = _environment(line, head)
        return Caller(_rank(environment), environment, line, tuple(held))
    except (OSError, LookupError, ValueError):
        for fd in held:
            os.close(fd)
        raise


def _rank(environment: dict[str, str]) -> int:
    for name in _RANK_NAMES:
        if name in environment:
            return int(environment[name])
    raise LookupError("none of the variables of a rank is there")


def _environment(line: socket.socket, head: bytes) -> dict[str, str]:
    """The variables that follow on this head."""
    length = int.from_bytes(head, "big")
    if len(head) < 8 or length > _LONGEST:
        raise OSError("a caller who is no shim")
    text = b""
    while len(text) < length:
        part = line.recv(length - len(text))
        if not part:
            raise OSError("a shim that ended too soon")
        text += part
    found: dict[str, str] = json.loads(text)
    return found


def _check_owner(line: socket.socket) -> None:
    """Only this user's processes; the door's folder is closed to the others anyway."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    layout = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    if layout.unpack(credentials)[1] != os.getuid():
        raise PermissionError("a caller of another user")
