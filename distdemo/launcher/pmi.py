"""PMI-1 server that starts MPICH ranks on this machine without mpiexec.

PMI-1 messages are lines of ``name=value`` pairs, the first of which is ``cmd``. Each rank has one
end of a socket pair, so no other process can connect. Sources: MPICH's ``src/pmi``, and RFC 13 of
the Flux project.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection

from distdemo.launcher.process_tree import Cleanup
from distdemo.launcher.records import MpiStart

MAX_LINE_BYTES = 1 << 14
"""Maximum bytes per line, many times what ``_LIMITS`` allow."""
FOREIGN = (
    "PMI_",
    "PMIX_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_",
    "MPI_LOCAL",
    "HYDI_",
    "PALS_",
)
"""Prefixes of the variables that another launcher sets for its ranks."""
_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=1024"

Answer = tuple[int, str]
"""A rank and a line for it."""


class PmiServer:
    """PMI server for the MPICH ranks of one world.

    Args:
        start: Settings that keep MPICH on this machine.
        size: Number of ranks.
    """

    def __init__(self, start: MpiStart, size: int) -> None:
        name = f"distdemo-{secrets.token_hex(8)}"  # a new name: killed ranks leave memory behind
        self._start = start
        self._size = size
        self._exchange = KeyValueSpace(size, name)
        self.ports: dict[int, Port] = {}
        self._cleanup = Cleanup(
            [f"/dev/shm/{file}" for file in segment_names(name)]
        )  # where shm_open puts what MPICH shares

    def connect(self, rank: int) -> tuple[dict[str, str], Connection]:
        """Return the environment and the socket for a rank that is about to start.

        The rank finds the socket's descriptor in ``PMI_FD``; see ``set_environment``.
        """
        ours, theirs = socket.socketpair()
        self.ports[rank] = Port(ours, rank, self._on_line)
        environment = {
            **dict(self._start.environment),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(self._size),
            "MPI_LOCALRANKID": str(rank),
            "MPI_LOCALNRANKS": str(self._size),
        }
        return environment, Connection(theirs.detach())

    @property
    def open_ports(self) -> list[Port]:
        """Ports whose rank hasn't closed its end."""
        return [port for port in self.ports.values() if port.open]

    def poll(self) -> None:
        """Answer the requests that have arrived."""
        for port in self.ports.values():
            port.on_message()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that a forked rank must close."""
        ends = (port.fileno() for port in self.open_ports)
        return *ends, *self._cleanup.descriptors

    def close(self) -> None:
        """Close all ports and remove the shared memory of killed ranks."""
        for port in self.ports.values():
            port.close()
        self._cleanup.close()

    def _on_line(self, rank: int, line: str) -> None:
        for other, text in self._exchange.answer(rank, line):
            if other in self.ports:
                self.ports[other].send(text)


def set_environment(environment: dict[str, str], end: Connection) -> None:
    """Set the rank's environment and remove the variables of another launcher.

    The descriptor stays open until the process exits, because the library uses it until then.
    """
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ.update(environment, PMI_FD=str(os.dup(end.fileno())))
    end.close()


class Port:
    """The launcher's non-blocking end of one rank's socket."""

    def __init__(self, end: socket.socket, rank: int, on_line: Callable[[int, str], None]) -> None:
        self._end = end
        self._rank = rank
        self._on_line = on_line
        self._pending = b""
        self.open = True
        end.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor of the launcher's end."""
        return self._end.fileno()

    def on_message(self) -> bool:
        """Answer the requests that have arrived; False at end of file."""
        while self.open:
            try:
                data = self._end.recv(MAX_LINE_BYTES)
            except BlockingIOError:
                return True
            except OSError:  # the rank was killed with unread data
                data = b""
            if not data or len(self._pending) > MAX_LINE_BYTES:  # closed, or not PMI
                self.close()
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                self._on_line(self._rank, line.decode(errors="replace"))
        return False

    def send(self, text: str) -> None:
        """Send a line; close the port if the rank reads so slowly that the line doesn't fit."""
        if not self.open:
            return
        line = text.encode() + b"\n"
        try:
            whole = self._end.send(line) == len(line)
        except OSError:
            whole = False
        if not whole:
            self.close()

    def close(self) -> None:
        """Close the port."""
        if self.open:
            self.open = False
            os.close(self._end.detach())


class KeyValueSpace:
    """Key-value space of one world: PMI requests in, replies out.

    Args:
        size: Number of ranks, all on this machine.
        name: Name of the world, from which MPICH derives the names of its shared memory.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._values = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        self._waiting: set[int] = set()

    def answer(self, rank: int, line: str) -> list[Answer]:
        """Return the replies to a rank's line: one for it, or one per rank at a barrier's end.

        Requests that aren't supported (names, spawned ranks) get an error reply.
        """
        request = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
        command = request.get("cmd", "")
        if command == "barrier_in":
            self._waiting.add(rank)
            if len(self._waiting) < self._size:
                return []
            self._waiting.clear()
            return [(every, "cmd=barrier_out rc=0") for every in range(self._size)]
        if command == "abort":  # the rank expects no reply, and exits
            return []
        reply = {
            "get_maxes": f"cmd=maxes rc=0 {_LIMITS}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self._name}",
            "get_universe_size": f"cmd=universe_size rc=0 size={self._size}",
            "finalize": "cmd=finalize_ack rc=0",
        }.get(command, "cmd=error rc=-1 msg=unknown_command")
        if command == "init":
            code = 0 if request.get("pmi_version", "1") == "1" else -1
            reply = f"cmd=response_to_init rc={code} pmi_version=1 pmi_subversion=1"
        elif command == "put":
            reply = "cmd=put_result rc=-1 msg=no_such_space"
            if "key" in request and request.get("kvsname", self._name) == self._name:
                self._values[request["key"]] = request.get("value", "")
                reply = "cmd=put_result rc=0 msg=success"
        elif command == "get":
            value = self._values.get(request.get("key", ""))
            reply = "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            if value is not None:
                reply = f"cmd=get_result rc=0 msg=success value={value}"
        return [(rank, reply)]


def segment_names(name: str) -> tuple[str, ...]:
    """Return the names of a world's shared-memory files in ``/dev/shm``, as MPICH derives them.

    A killed rank leaves them behind. Source: MPICH's ``posix_init.c``; the number is the FNV-1a
    hash of the name (``mpir_pmi.c``), and 0 the number of the host.
    """
    number = 2166136261
    for byte in name.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return f"mpich_shm_{number:x}_0", f"mpich_vci_{number:x}_0"
