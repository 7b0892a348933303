"""How the ranks of a world that spans several nodes find each other: two ways to one store.

- The engine or the user named the master: node 0 opens a port for each world, and tells the other
  nodes its number; the process of rank 0 keeps the store there.
- mpiexec names no address, so the ranks ask each other over MPI (:class:`MpiRendezvous`).

The ports are open on one address only: the one that was named, or that the others reach.
"""

from __future__ import annotations

import array
import fcntl
import hashlib
import importlib.util
import os
import socket
import sys
import termios
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from select import select
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.launcher.joined import interfaces
from distdemo.launcher.rendezvous import Rendezvous, take_interface

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank

READ_LIMIT_S = 2.0  # that hydra gets to read what was written to it


@dataclass(frozen=True, slots=True)
class TcpRendezvous(Rendezvous):
    """A store over TCP that rank 0 keeps.

    Attributes:
        listening: on node 0, the socket on which rank 0 keeps it.
    """

    host: str
    port: int
    listening: socket.socket | None = None

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """Keep the store if this is rank 0, or connect to it."""
        return _tcp_store(self.host, self.port, patience, self.listening, keep=rank.rank == 0)


def _tcp_store(
    host: str, port: int, patience: timedelta, listening: socket.socket | None, *, keep: bool
) -> Store:
    from torch._C._distributed_c10d import TCPStore

    if listening is not None and keep:
        fd = listening.detach()
        return TCPStore(
            host, port, None, True, patience, wait_for_workers=False, master_listen_fd=fd
        )
    if listening is not None:
        listening.close()  # a rank beside rank 0
    return TCPStore(host, port, None, False, patience, wait_for_workers=False)


# ------------------------------------------------------------------------------------- over MPI

BRIDGE = "distdemo.mpi.runtime"
"""Begins MPI in a rank; loaded by name, as the launcher knows no backend."""
_WITHIN_A_HOST = {"UCX_TLS": "self,sysv", "I_MPI_FABRICS": "shm"}
"""Keeps MPICH (over UCX) and Intel MPI to shared memory: they would open sockets, too."""
_ADDRESS_BYTES = 256  # in which rank 0 says where the others find node 0 and the store
_MEMORY = "/dev/shm/"  # noqa: S108 - looked at only
_ANSWER = 2.0  # seconds for hydra to acknowledge a farewell


@dataclass(frozen=True, slots=True)
class Agreed:
    """What a rank tells its node once MPI has begun.

    Attributes:
        host: where node 0 listens for the other nodes.
        port: likewise.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class MpiRendezvous(Rendezvous):
    """A store whose address the ranks tell each other over MPI.

    Attributes:
        offers: on node 0, the addresses and ports at which the other nodes could meet it: on
            loopback, and on an address that other hosts reach, if there is one.
        one_host: it is known that all ranks are on this host.
    """

    offers: tuple[tuple[str, int], ...]
    one_host: bool

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """Collective: begin MPI, agree on the addresses, tell the node, and connect.

        Raises:
            UsageError: MPI can't be begun, or no address leads to the other hosts.
        """
        if self.one_host:
            for name, value in _WITHIN_A_HOST.items():
                os.environ.setdefault(name, value)
        import_module(BRIDGE).begin()
        world = import_module("mpi4py.MPI").COMM_WORLD
        mine = hashlib.sha256(socket.gethostname().encode()).digest()
        everyones = bytearray(len(mine) * world.Get_size())
        world.Allgather(bytearray(mine), everyones)
        together = bytes(everyones) == mine * world.Get_size()

        listening = None
        address = bytearray(_ADDRESS_BYTES)
        if world.Get_rank() == 0 and (together or len(self.offers) > 1):
            host, port = self.offers[0 if together else 1]
            listening = interfaces.listening_socket(host, 0)
            text = f"{host} {port} {listening.getsockname()[1]}".encode()
            address[: len(text)] = text
        world.Bcast(address, root=0)
        said = address.rstrip(b"\0").decode().split()
        if not said:
            raise UsageError(
                "The ranks have no address to meet at.",
                "They are on several hosts, and the host of rank 0 has no address of its own.",
                "Set MASTER_ADDR and MASTER_PORT on all ranks.",
            )
        host, port = said[0], int(said[1])
        own = "" if together else interfaces.address_towards(host, port)
        take_interface(interfaces.interface_of(own) or "")
        rank.tell(Agreed(host, port))
        return _tcp_store(host, int(said[2]), patience, listening, keep=True)

    def leave(self) -> None:
        """Collective: end MPI; mpiexec takes a rank that ends without this for a crash."""
        mpi = import_module("mpi4py.MPI")
        if mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()
        # MPICH itself tells hydra when the process exits through the C library (PMI-1's finalize,
        # over the descriptor that PMI_FD names). Ranks leave without that, as torch's static
        # objects would be taken apart beside its threads.
        if (hydra := _hydra()) is not None:
            with suppress(OSError):  # the library has signed off, and closed it
                os.write(hydra, b"cmd=finalize\n")
                select([hydra], [], [], _ANSWER)


def shared_segments(pid: int) -> set[str]:
    """Return the shared-memory files that a rank maps: MPI leaves them if its ranks are killed."""
    with suppress(OSError), Path(f"/proc/{pid}/maps").open(encoding="utf-8") as maps:
        return {name for line in maps if (name := line.split()[-1]).startswith(_MEMORY)}
    return set()


def mpi_offers() -> list[socket.socket]:
    """Two sockets that are bound and don't listen yet: on loopback, and on this host's address.

    The second is its name's, else its first interface's, if there is one that others reach.

    Raises:
        UsageError: mpi4py is not installed, so the ranks could not ask MPI.
    """
    check_mpi4py()
    reachable = [each for each in interfaces.reachable_addresses() if ":" not in each]
    with suppress(OSError):
        reachable.sort(key=socket.gethostbyname(socket.gethostname()).__ne__)
    made = []
    for address in ("127.0.0.1", *reachable[:1]):
        made.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        made[-1].bind((address, 0))
    return made


def check_mpi4py() -> None:
    """Refuse to go on where the ranks could not ask MPI.

    Raises:
        UsageError: mpi4py is not installed.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise UsageError(
            "mpiexec started this process, but it does not say where the ranks can meet.",
            "With mpi4py they would ask MPI; it is not installed.",
            "Try pip install 'distdemo[mpi]', or set MASTER_ADDR and MASTER_PORT on all ranks.",
        )


def abort_mpi() -> None:
    """Have hydra end all ranks: those that wait for one in MPI, before they could meet, hang.

    It does so by itself only for a process that was killed, or had begun MPI. What was written to
    it is lost if it hasn't read that by then.
    """
    if (hydra := _hydra()) is None:
        return
    until = time.monotonic() + READ_LIMIT_S
    unread = array.array("i", [0])
    with suppress(OSError):  # standard error is no pipe of hydra's; or nobody listens any more
        sys.stderr.flush()
        fcntl.ioctl(2, termios.FIONREAD, unread)
        while unread[0] and time.monotonic() < until:
            time.sleep(0.01)
            fcntl.ioctl(2, termios.FIONREAD, unread)
    with suppress(OSError):
        os.write(hydra, b"cmd=abort exitcode=1\n")


def _hydra() -> int | None:
    """The descriptor on which MPICH's and Intel MPI's starter listens, if it started us."""
    number = os.environ.get("PMI_FD", "")
    return int(number) if number.isdigit() else None
