"""Rendezvous under mpiexec, which sets no address: the ranks agree over MPI on the store's.

The launcher of rank 0 offers two ports, bound but not listening: one on loopback, and one on an
address that other hosts reach. Rank 0 checks whether all ranks are on one host, and broadcasts
one of the two addresses. Each rank then sends it to its own launcher.
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
from distdemo.joined import interfaces
from distdemo.launcher.rendezvous import Rendezvous, connect_store, set_interface

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from torch._C._distributed_c10d import Store


BRIDGE = "distdemo.mpi.runtime"
"""Module that initializes MPI in a rank; loaded by name, as the launcher knows no backend."""
FLUSH_TIMEOUT_S = 2.0  # for hydra to read standard error
FINALIZE_TIMEOUT_S = 2.0  # for hydra to acknowledge that a rank has finished
_SHARED_MEMORY_ONLY = {"UCX_TLS": "self,sysv", "I_MPI_FABRICS": "shm"}
"""Settings of MPICH (over UCX) and Intel MPI, which would open sockets on one host, too."""
_ADDRESS_BYTES = 256
_SEGMENTS = "/dev/shm/"  # only to recognize paths


@dataclass(frozen=True, slots=True)
class MpiAddress:
    """Address of the store, which a rank sends to its own launcher."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class MpiRendezvous(Rendezvous):
    """Store whose address rank 0 broadcasts over MPI.

    Attributes:
        offers: Addresses and ports to choose from, on the node of rank 0.
        one_host: True if all ranks are known to be on this host.
    """

    offers: tuple[tuple[str, int], ...]
    one_host: bool

    def store(self, world_size: int, timeout: timedelta, send: Callable[[object], None]) -> Store:
        """Initialize MPI, agree on the address, report it to the launcher, connect. Collective.

        Raises:
            UsageError: MPI can't be initialized, or no address leads to the other hosts.
        """
        if self.one_host:
            for name, value in _SHARED_MEMORY_ONLY.items():
                os.environ.setdefault(name, value)
        import_module(BRIDGE).begin()
        world = import_module("mpi4py.MPI").COMM_WORLD
        mine = hashlib.sha256(socket.gethostname().encode()).digest()
        all_hosts = bytearray(len(mine) * world.Get_size())
        world.Allgather(bytearray(mine), all_hosts)
        same_host = bytes(all_hosts) == mine * world.Get_size()

        address = bytearray(_ADDRESS_BYTES)
        if world.Get_rank() == 0 and (same_host or len(self.offers) > 1):
            text = "{} {}".format(*self.offers[0 if same_host else 1]).encode()
            address[: len(text)] = text
        world.Bcast(address, root=0)
        host, _, port = address.rstrip(b"\0").decode().partition(" ")
        if not host:
            raise UsageError(
                "The ranks have no common address.",
                "They are on several hosts, and no other host can reach the host of rank 0.",
                "Set MASTER_ADDR and MASTER_PORT on all ranks.",
            )
        own = "" if same_host else interfaces.address_towards(host, int(port))
        set_interface(interfaces.interface_of(own) or "")
        send(MpiAddress(host, int(port)))
        return connect_store(host, int(port), timeout)

    def leave(self) -> None:
        """Finalize MPI; otherwise mpiexec reports a crash. Collective."""
        mpi = import_module("mpi4py.MPI")
        if mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()
        # MPICH reports the exit to hydra from a C exit handler (PMI-1's finalize, over the
        # descriptor in PMI_FD). Ranks exit without exit handlers, because these would destroy
        # torch's static objects while its threads run.
        if (hydra := _hydra()) is not None:
            with suppress(OSError):  # the library has already sent it and closed the descriptor
                os.write(hydra, b"cmd=finalize\n")
                select([hydra], [], [], FINALIZE_TIMEOUT_S)


def mpi_offers() -> list[socket.socket]:
    """Return two bound sockets that don't listen: on loopback, and on this host's own address.

    The second has the address of the host's name or else of its first interface; it is left out if
    other hosts can reach neither.

    Raises:
        UsageError: mpi4py is not installed, so the ranks can't use MPI to agree.
    """
    check_mpi4py()
    reachable = [own for own in interfaces.reachable_addresses() if ":" not in own]
    with suppress(OSError):
        reachable.sort(key=socket.gethostbyname(socket.gethostname()).__ne__)
    offers = []
    for address in ("127.0.0.1", *reachable[:1]):
        offers.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        offers[-1].bind((address, 0))
    return offers


def check_mpi4py() -> None:
    """Raise `UsageError` if mpi4py is not installed."""
    if importlib.util.find_spec("mpi4py") is None:
        raise UsageError(
            "mpiexec started this process, but sets no address for the ranks.",
            "They would agree on one over MPI, but mpi4py is not installed.",
            "Try pip install 'distdemo[mpi]', or set MASTER_ADDR and MASTER_PORT on all ranks.",
        )


def shared_segments(pid: int) -> set[str]:
    """Return the shared-memory files that a rank maps, which killed ranks leave behind."""
    with suppress(OSError), Path(f"/proc/{pid}/maps").open(encoding="utf-8") as maps:
        return {name for line in maps if (name := line.split()[-1]).startswith(_SEGMENTS)}
    return set()


def abort_mpi() -> None:
    """Make hydra end all ranks: those that wait in MPI for a failed rank would hang.

    Hydra does so on its own only if a process was killed or had initialized MPI. Output on standard
    error is lost unless hydra has read it.
    """
    if (hydra := _hydra()) is None:
        return
    until = time.monotonic() + FLUSH_TIMEOUT_S
    unread = array.array("i", [0])
    with suppress(OSError):  # standard error isn't a pipe to hydra, or has no reader
        sys.stderr.flush()
        fcntl.ioctl(2, termios.FIONREAD, unread)
        while unread[0] and time.monotonic() < until:
            time.sleep(0.01)
            fcntl.ioctl(2, termios.FIONREAD, unread)
    with suppress(OSError):
        os.write(hydra, b"cmd=abort exitcode=1\n")


def _hydra() -> int | None:
    """Return the descriptor of the PMI connection to hydra (MPICH, Intel MPI), or None."""
    number = os.environ.get("PMI_FD", "")
    return int(number) if number.isdigit() else None
