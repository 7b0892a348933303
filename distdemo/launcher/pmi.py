"""Ranks of MPICH on this machine without mpiexec: the launcher answers their questions itself.

PMI-1 is lines of ``name=value`` pairs, the first of which is ``cmd``. Each rank has one end of a
socket pair; nobody else can speak to it, and nothing listens anywhere. Source: the wire protocol
as MPICH's ``src/pmi`` speaks it, and the Flux project's RFC 13, which describes it.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection

from distdemo.launcher.process_tree import Cleanup
from distdemo.launcher.records import MpiStart

LONGEST = 1 << 14
"""Bytes of a line at most: many times what the limits that ranks are told allow."""
STRANGE = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "MPI_LOCAL", "HYDI_", "PALS_")
"""How the variables begin by which another starter tells a process that it is its rank."""
_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=1024"

Answer = tuple[int, str]
"""A rank, and a line for it."""


class PmiServer:
    """What starts the ranks of one world over MPICH: a port for each, answered while they run.

    Args:
        start: what MPICH needs to stay on this machine.
        size: how many ranks.
    """

    def __init__(self, start: MpiStart, size: int) -> None:
        name = f"distdemo-{secrets.token_hex(8)}"  # never one whose shared memory was left behind
        self._start = start
        self._size = size
        self._exchange = Exchange(size, name)
        self.ports: dict[int, Port] = {}
        self._cleanup = Cleanup([f"/dev/shm/{file}" for file in segment_names(name)])  # noqa: S108 - where shm_open puts what MPICH shares

    def connect(self, rank: int) -> tuple[dict[str, str], Connection]:
        """For a rank that is about to start: its environment, and its end of the pair.

        It finds the descriptor of that end in ``PMI_FD``; see ``take``.
        """
        ours, theirs = socket.socketpair()
        self.ports[rank] = Port(ours, rank, self._hear)
        environment = {
            **dict(self._start.environment),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(self._size),
            "MPI_LOCALRANKID": str(rank),
            "MPI_LOCALNRANKS": str(self._size),
        }
        return environment, Connection(theirs.detach())

    def hear(self) -> None:
        """Answer what those that run have asked by now."""
        for port in self.ports.values():
            port.hear()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a forked rank has to close."""
        ends = (port.fileno() for port in self.ports.values() if port.open)
        return *ends, *self._cleanup.descriptors

    def close(self) -> None:
        """Hang up, and remove what killed ranks have left."""
        for port in self.ports.values():
            port.close()
        self._cleanup.close()

    def _hear(self, rank: int, line: str) -> None:
        for other, text in self._exchange.answer(rank, line):
            if other in self.ports:
                self.ports[other].say(text)


def take(environment: dict[str, str], end: Connection) -> None:
    """In the rank: say all this in its environment, and nothing of another world.

    The descriptor stays open until the process ends: the library speaks through it then.
    """
    for name in [name for name in os.environ if name.startswith(STRANGE)]:
        del os.environ[name]
    os.environ.update(environment, PMI_FD=str(os.dup(end.fileno())))
    end.close()


class Port:
    """The launcher's end of one rank's wire: bytes in, whole lines out, and never a wait."""

    over = None

    def __init__(self, end: socket.socket, rank: int, heard: Callable[[int, str], None]) -> None:
        self._end = end
        self._rank = rank
        self._take = heard
        self._pending = b""
        self.open = True
        end.setblocking(False)

    def fileno(self) -> int:
        """Of the launcher's end."""
        return self._end.fileno()

    def hear(self) -> bool:
        """Answer what came; False when there will be no more."""
        while self.open:
            try:
                data = self._end.recv(LONGEST)
            except BlockingIOError:
                return True
            except OSError:  # the rank was killed with something unread
                data = b""
            if not data or len(self._pending) > LONGEST:  # gone, or not speaking PMI
                self.close()
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                self._take(self._rank, line.decode(errors="replace"))
        return False

    def say(self, text: str) -> None:
        """Send a line; hang up on a rank that reads so little that it does not fit."""
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
        """Hang up."""
        if self.open:
            self.open = False
            os.close(self._end.detach())


class Exchange:
    """What all ranks of one world put down for each other: lines go in and answers come out.

    Args:
        size: how many ranks, all on this machine.
        name: of the world; MPICH derives the names of its shared memory from it.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._values = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        self._waiting: set[int] = set()

    def answer(self, rank: int, line: str) -> list[Answer]:
        """What a rank's line calls for: lines for it, or for all when the last one came.

        What has no answer here (names, spawned ranks) is an error to the library that asks.
        """
        said = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
        command = said.get("cmd", "")
        if command == "barrier_in":
            self._waiting.add(rank)
            if len(self._waiting) < self._size:
                return []
            self._waiting.clear()
            return [(every, "cmd=barrier_out rc=0") for every in range(self._size)]
        if command == "abort":  # it waits for no answer, and ends by itself
            return []
        reply = {
            "get_maxes": f"cmd=maxes rc=0 {_LIMITS}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self._name}",
            "get_universe_size": f"cmd=universe_size rc=0 size={self._size}",
            "finalize": "cmd=finalize_ack rc=0",
        }.get(command, "cmd=error rc=-1 msg=unknown_command")
        if command == "init":
            code = 0 if said.get("pmi_version", "1") == "1" else -1
            reply = f"cmd=response_to_init rc={code} pmi_version=1 pmi_subversion=1"
        elif command == "put":
            reply = "cmd=put_result rc=-1 msg=no_such_space"
            if "key" in said and said.get("kvsname", self._name) == self._name:
                self._values[said["key"]] = said.get("value", "")
                reply = "cmd=put_result rc=0 msg=success"
        elif command == "get":
            value = self._values.get(said.get("key", ""))
            reply = "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            if value is not None:
                reply = f"cmd=get_result rc=0 msg=success value={value}"
        return [(rank, reply)]


def segment_names(name: str) -> tuple[str, ...]:
    """What MPICH may call the files of shared memory of the world of this name, in ``/dev/shm``.

    A rank that is killed leaves them behind. Source: MPICH's ``posix_init.c``; the number is the
    name's FNV-1a hash (``mpir_pmi.c``), and 0 the number of the host.
    """
    number = 2166136261
    for byte in name.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return f"mpich_shm_{number:x}_0", f"mpich_vci_{number:x}_0"
