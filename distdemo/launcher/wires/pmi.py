"""Ranks of MPICH on this machine, without mpiexec: the launcher answers their questions itself.

Each rank has one end of a socket pair; nobody else can speak to it, and nothing listens anywhere.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection

from distdemo.launcher.keeper import Keeper
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.wires.contract import Ticket, Wire
from distdemo.launcher.wires.pmi_protocol import LONGEST, Exchange, segment_names

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where shm_open puts what MPICH shares


class PmiWire(Wire):
    """One port a rank, and what all ranks have put down."""

    def __init__(self, world: WorldSpec) -> None:
        name = f"distdemo-{secrets.token_hex(8)}"  # never one whose shared memory was left behind
        self._world = world
        self._exchange = Exchange(world.world_size, name)
        self._ports: dict[int, _Port] = {}
        self._handed: Connection | None = None
        self._keeper = Keeper([f"{_SHARED_MEMORY}/{file}" for file in segment_names(name)])

    @property
    def listeners(self) -> tuple[_Port, ...]:  # type: ignore[override]  # it grows rank by rank
        """The ports of all ranks that were started, and have not ended since."""
        return tuple(port for port in self._ports.values() if not port.closed)

    def ticket(self, rank: int) -> Ticket:
        """Its end of the pair, and which of how many ranks it is."""
        ours, theirs = socket.socketpair()
        self._ports[rank] = _Port(ours, rank, self._hear)
        self._handed = Connection(theirs.detach())
        size = str(self._world.world_size)
        mpi_start = self._world.mpi_start
        environment = {
            **dict(mpi_start.environment if mpi_start is not None else ()),
            "PMI_RANK": str(rank),
            "PMI_SIZE": size,
            "MPI_LOCALRANKID": str(rank),
            "MPI_LOCALNRANKS": size,
        }
        return Ticket(tuple(environment.items()), (("PMI_FD", self._handed),))

    def started(self, rank: int) -> None:
        """Let go of the rank's end, and answer what those that run have asked by now."""
        if self._handed is not None:
            self._handed.close()
            self._handed = None
        for port in self._ports.values():
            port.hear()

    def descriptors(self) -> tuple[int, ...]:
        """The launcher's ends."""
        ends = (port.fileno() for port in self._ports.values() if not port.closed)
        return *ends, *self._keeper.descriptors()

    def close(self) -> None:
        """Hang up, and remove what killed ranks have left."""
        for port in self._ports.values():
            port.close()
        self._keeper.close()

    def _hear(self, rank: int, line: str) -> None:
        for other, text in self._exchange.answer(rank, line):
            if other in self._ports:
                self._ports[other].say(text)


class _Port:
    """The launcher's end of one rank's wire: bytes in, whole lines out, and never a wait."""

    over = False

    def __init__(self, end: socket.socket, rank: int, take: Callable[[int, str], None]) -> None:
        self._end = end
        self._rank = rank
        self._take = take
        self._pending = b""
        self.closed = False
        end.setblocking(False)

    def fileno(self) -> int:
        return self._end.fileno()

    def hear(self) -> bool:
        """Answer what came; False when there will be no more."""
        while not self.closed:
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
        """Send a line; whoever asks so much without reading that it does not fit has hung up."""
        if self.closed:
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
        if not self.closed:
            self.closed = True
            os.close(self._end.detach())
