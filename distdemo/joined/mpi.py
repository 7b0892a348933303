"""Rendezvous under mpiexec, which sets no address: rank 0 broadcasts the store's over MPI."""

from __future__ import annotations

import importlib.util
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from select import select
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.joined import interfaces
from distdemo.launcher.rendezvous import Rendezvous, connect_store, set_interface

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

    from distdemo.joined.engines import Placement

FINALIZE_TIMEOUT_S = 2.0  # for hydra to acknowledge that a rank has finished
_ADDRESS_BYTES = 256


@dataclass(frozen=True, slots=True)
class MpiAddress:
    """Address of the store, which a rank sends to its own launcher."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class MpiRendezvous(Rendezvous):
    """Store at this address; on nodes other than node 0, at the one that rank 0 broadcasts."""

    address: MpiAddress | None

    def store(self, world_size: int, timeout: timedelta, send: Callable[[object], None]) -> Store:
        """Initialize MPI, agree on the address, send it to the launcher, connect. Collective."""
        import_module("distdemo.mpi.runtime").begin()  # by name: the launcher knows no backend
        message = bytearray(_ADDRESS_BYTES)
        if self.address is not None:
            text = f"{self.address.host} {self.address.port}".encode()
            message[: len(text)] = text
        import_module("mpi4py.MPI").COMM_WORLD.Bcast(message, root=0)
        host, _, port = message.rstrip(b"\0").decode().partition(" ")
        send(MpiAddress(host, int(port)))
        set_interface(interfaces.interface_towards(host, int(port)))
        return connect_store(host, int(port), timeout)

    def leave(self) -> None:
        """Finalize MPI; otherwise mpiexec reports a crash. Collective."""
        mpi = import_module("mpi4py.MPI")
        if not mpi.Is_finalized():
            mpi.Finalize()
        # MPICH reports the exit to hydra from a C exit handler (PMI-1's finalize, over the
        # descriptor in PMI_FD). Ranks exit without exit handlers, because these would destroy
        # torch's static objects while its threads run.
        number = os.environ.get("PMI_FD", "")
        if number.isdigit():
            with suppress(OSError):  # the library has already sent it and closed the descriptor
                os.write(int(number), b"cmd=finalize\n")
                select([int(number)], [], [], FINALIZE_TIMEOUT_S)


def own_listener(place: Placement) -> socket.socket:
    """Return the socket on which node 0 serves the store, on a free port.

    Raises:
        UsageError: mpi4py is not installed, so the ranks can't agree on the address.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise UsageError(
            "mpiexec started this process, but sets no address for the ranks.",
            "They would agree on one over MPI, but mpi4py is not installed.",
            "Try pip install 'distdemo[mpi]', or set MASTER_ADDR and MASTER_PORT on all ranks.",
        )
    host = "127.0.0.1" if place.one_host else interfaces.name_for_others(socket.gethostname())
    return interfaces.listening_socket(host, 0)
