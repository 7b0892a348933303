"""Ranks that an mpiexec started know each other through MPI alone: so they agree on a store.

mpiexec tells no address at which a store could be. The site of rank 0 binds two sockets before it
starts its rank, one on loopback and one on its host's own address, but listens on neither. Once
MPI has begun, the ranks tell each other their hosts, and rank 0 says which of the two it is. Each
rank tells its site, whose herald then opens the store there or connects to it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher.joined import interfaces
from distdemo.launcher.joined.meeting import Meeting
from distdemo.launcher.surroundings import take_interface

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank

BRIDGE = "distdemo.mpi.runtime"
"""Begins MPI in a rank; loaded by name, as launchers know no backend."""
_WITHIN_A_HOST = {"UCX_TLS": "self,sysv", "I_MPI_FABRICS": "shm"}
"""What keeps MPICH (over UCX) and Intel MPI to shared memory: they would open sockets, too."""
_WORDS = 256  # bytes in which rank 0 says where the store is
_MEMORY = "/dev/shm/"  # noqa: S108 - looked at only
ANSWER = 2.0  # seconds for hydra to acknowledge a farewell


@dataclass(frozen=True, slots=True)
class Offers:
    """Where rank 0's site could hold the store; None: another site does.

    Attributes:
        here: on the loopback interface.
        abroad: on an address that other hosts reach; None if this host has none.
    """

    here: Meeting
    abroad: Meeting | None

    @property
    def all(self) -> tuple[Meeting | None, ...]:
        """Both."""
        return self.here, self.abroad


@dataclass(frozen=True, slots=True)
class MpiRendezvous:
    """A store whose address the ranks tell each other over MPI.

    Attributes:
        prefix: before all keys of this world.
        offers: on rank 0's site, where the store can be.
        alone: all ranks are on this host, so that no other needs to reach them.
    """

    prefix: str
    offers: Offers | None
    alone: bool = False
    directory: None = None

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """Collective: begin MPI, agree on the address, tell the site, and connect.

        Raises:
            UsageError: MPI can't be begun, or no address leads to the other hosts.
        """
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        if self.alone:
            for name, value in _WITHIN_A_HOST.items():
                os.environ.setdefault(name, value)
        world = begun()
        meeting = self._agreed(world)
        rank.tell(replace(meeting, litter=_litter()))
        store = TCPStore(
            meeting.host, meeting.port, None, False, timeout=patience, wait_for_workers=False
        )
        return PrefixStore(self.prefix, store)

    def leave(self) -> None:
        """Collective: end MPI; mpiexec takes a rank that ends without this for a crash."""
        mpi = import_module("mpi4py.MPI")
        if mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()
        _sign_off()

    def _agreed(self, world: Any) -> Meeting:  # noqa: ANN401 - mpi4py's communicator
        """Collective: where the store is, as rank 0 says."""
        together = _on_one_host(world)
        chosen = None if self.offers is None else self.offers.here
        if self.offers is not None and not together:
            chosen = self.offers.abroad
        words = bytearray(_WORDS)
        if world.Get_rank() == 0 and chosen is not None:
            text = f"{chosen.host} {chosen.port} {chosen.prefix}".encode()
            words[: len(text)] = text
        world.Bcast(words, root=0)
        said = words.rstrip(b"\0").decode().split(" ", 2)
        if len(said) < 3:
            raise UsageError(
                "The ranks have no address to meet at.",
                "They are on several hosts, and the host of rank 0 has no address of its own.",
                "Set MASTER_ADDR and MASTER_PORT for all ranks.",
            )
        name = ""
        if not together:
            address = interfaces.address_towards(said[0], int(said[1]))
            name = interfaces.interface_of(address) or ""
        take_interface(name)
        return chosen or Meeting(said[0], int(said[1]), said[2])


def begun() -> Any:  # noqa: ANN401 - mpi4py's communicator
    """MPI's world, begun in this process if it was not."""
    import_module(BRIDGE).begin()
    return import_module("mpi4py.MPI").COMM_WORLD


def check_bridge() -> None:
    """Refuse to go on where the ranks could not ask MPI.

    Raises:
        UsageError: mpi4py is not installed.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise UsageError(
            "mpiexec started this process, but it does not say where the ranks can meet.",
            "With mpi4py they would ask MPI; it is not installed.",
            "Try pip install 'distdemo[mpi]', or set MASTER_ADDR and MASTER_PORT for all ranks.",
        )


def offers(prefix: str) -> Offers:
    """Two sockets that are bound and don't listen yet: on loopback, and on this host's address."""
    here = _bound("127.0.0.1", prefix)
    address = _own_address()
    return Offers(here, None if address is None else _bound(address, prefix))


def _bound(address: str, prefix: str) -> Meeting:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind((address, 0))
    return Meeting(address, made.getsockname()[1], prefix, listening=made.detach())


def _own_address() -> str | None:
    """An address of this host that is no loopback: its name's, else its first interface's."""
    candidates = [address for each in interfaces.addresses().values() for address in each]
    reachable = [a for a in candidates if ":" not in a and not interfaces.is_loopback(a)]
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError:
        named = ""
    return named if named in reachable else next(iter(reachable), None)


def _on_one_host(world: Any) -> bool:  # noqa: ANN401 - mpi4py's communicator
    """Collective: whether every rank is on the same host."""
    mine = hashlib.sha256(socket.gethostname().encode()).digest()
    everyones = bytearray(len(mine) * world.Get_size())
    world.Allgather(bytearray(mine), everyones)
    return bool(everyones == mine * world.Get_size())


def _litter() -> tuple[str, ...]:
    """What MPI has put into memory for the ranks of this host to share; a killed one leaves it."""
    with suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8") as maps:
        return tuple(
            {line.split()[-1] for line in maps if line.rpartition(" ")[2].startswith(_MEMORY)}
        )
    return ()


def call_off() -> None:
    """Have hydra end all ranks: those that wait for one in MPI, before they could meet, hang.

    It does so by itself only for a process that was killed, or had begun MPI.
    """
    number = os.environ.get("PMI_FD", "")
    if number.isdigit():
        with suppress(OSError):  # nobody listens any more
            os.write(int(number), b"cmd=abort exitcode=1\n")


def _sign_off() -> None:
    """Tell hydra, the starter of MPICH and Intel MPI, that this rank ends as it should.

    MPICH itself does so when the process exits through the C library (PMI-1's ``finalize``, over
    the descriptor that PMI_FD names). Ranks leave without that, as torch's static objects would
    be taken apart beside its threads.
    """
    number = os.environ.get("PMI_FD", "")
    if number.isdigit():
        with suppress(OSError):  # the library has signed off, and closed it
            os.write(int(number), b"cmd=finalize\n")
            select([int(number)], [], [], ANSWER)
