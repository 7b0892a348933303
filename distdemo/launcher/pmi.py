"""PMI-1 server that starts MPICH ranks on this machine without mpiexec.

PMI-1 messages are lines of ``name=value`` pairs, the first of which is ``cmd``. Each rank has one
end of a socket pair and waits for the answer to each of its lines. Sources: MPICH's ``src/pmi``,
and RFC 13 of the Flux project.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from multiprocessing.connection import Connection

from distdemo.launcher.process_tree import Cleanup

MAX_LINE_BYTES = 1 << 14
"""Maximum bytes per line, many times what ``_LIMITS`` allow."""
FOREIGN = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "MPI_LOCAL", "HYDI_", "PALS_")
"""Prefixes of the variables that another launcher sets for its ranks."""
_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=1024"


class PmiServer:
    """PMI server for the MPICH ranks of one world.

    Args:
        environment: Variables that keep MPICH on this machine.
        size: Number of ranks.

    Attributes:
        sockets: Launcher's end of each rank's socket, by rank.
    """

    def __init__(self, environment: tuple[tuple[str, str], ...], size: int) -> None:
        self.sockets: dict[int, socket.socket] = {}
        self._environment = environment
        self._size = size
        self._name = f"distdemo-{secrets.token_hex(8)}"  # new: killed ranks leave memory behind
        self._values = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        self._waiting: set[int] = set()
        self._cleanup = Cleanup([f"/dev/shm/{file}" for file in segment_names(self._name)])

    def connect(self, rank: int) -> tuple[dict[str, str], Connection]:
        """Return the environment and the socket for a rank that is about to start.

        The rank finds the socket's descriptor in ``PMI_FD``; see ``set_environment``.
        """
        self.sockets[rank], theirs = socket.socketpair()
        environment = {
            **dict(self._environment),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(self._size),
            "MPI_LOCALRANKID": str(rank),
            "MPI_LOCALNRANKS": str(self._size),
        }
        return environment, Connection(theirs.detach())

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that a forked rank must close."""
        return *(end.fileno() for end in self.sockets.values()), *self._cleanup.descriptors

    def on_message(self, rank: int) -> bool:
        """Answer the lines of a rank that have arrived; False at end of file."""
        try:
            data = self.sockets[rank].recv(MAX_LINE_BYTES)
        except OSError:  # the rank was killed with unread data
            return False
        for line in data.decode(errors="replace").splitlines():
            self._answer(rank, dict(pair.split("=", 1) for pair in line.split() if "=" in pair))
        return bool(data)

    def _answer(self, rank: int, request: dict[str, str]) -> None:
        """Answer a request; names and spawned ranks aren't supported."""
        command = request.get("cmd", "")
        key = request.get("key", "")
        if command == "abort":  # the rank expects no reply, and exits
            return
        if command == "barrier_in":
            self._waiting.add(rank)
            if len(self._waiting) == self._size:
                self._waiting.clear()
                for other in self.sockets:
                    self._send(other, "cmd=barrier_out rc=0")
            return
        if command == "put":
            self._values[key] = request.get("value", "")
        value = "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        if key in self._values:
            value = f"cmd=get_result rc=0 msg=success value={self._values[key]}"
        replies = {
            "init": "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "get_maxes": f"cmd=maxes rc=0 {_LIMITS}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self._name}",
            "get_universe_size": f"cmd=universe_size rc=0 size={self._size}",
            "put": "cmd=put_result rc=0 msg=success",
            "get": value,
            "finalize": "cmd=finalize_ack rc=0",
        }
        self._send(rank, replies.get(command, "cmd=error rc=-1 msg=unknown_command"))

    def _send(self, rank: int, line: str) -> None:
        with suppress(OSError):  # the rank has exited
            self.sockets[rank].sendall(f"{line}\n".encode())

    def close(self) -> None:
        """Close all sockets and remove the shared memory of killed ranks."""
        for end in self.sockets.values():
            end.close()
        self._cleanup.close()


def set_environment(environment: dict[str, str], end: Connection) -> None:
    """Set the rank's environment and remove the variables of another launcher.

    The descriptor stays open until the process exits, because the library uses it until then.
    """
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ.update(environment, PMI_FD=str(os.dup(end.fileno())))
    end.close()


def segment_names(name: str) -> tuple[str, ...]:
    """Return the names of a world's shared-memory files in ``/dev/shm``, as MPICH derives them.

    A killed rank leaves them behind. Source: MPICH's ``posix_init.c``; the number is the FNV-1a
    hash of the name (``mpir_pmi.c``), and 0 the number of the host.
    """
    number = 2166136261
    for byte in name.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return f"mpich_shm_{number:x}_0", f"mpich_vci_{number:x}_0"
