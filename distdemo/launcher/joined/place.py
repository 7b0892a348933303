"""Where the sites of a world meet, and on which interface: from the engine's words to a store.

The store holds on to one address only. Where the engine holds it (torchrun's agent), that is the
engine's choice; where this program does, it is the address that was named, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.launcher.joined import interfaces
from distdemo.launcher.joined.meeting import Meeting

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

    from distdemo.launcher.joined.seat import Seat
    from distdemo.launcher.rank import Rank


@dataclass(frozen=True, slots=True)
class TcpRendezvous:
    """A store over TCP that another process holds, for one world of several that share it."""

    host: str
    port: int
    prefix: str
    directory: None = None

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """A new connection to it, with keys of its own."""
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        store = TCPStore(
            self.host, self.port, None, False, timeout=patience, wait_for_workers=False
        )
        return PrefixStore(self.prefix, store)

    def leave(self) -> None:
        """Nothing: who holds the store looks after it."""


def prefix_of(seat: Seat) -> str:
    """Before the keys of all that belongs to this start of the program."""
    return f"distdemo/{seat.job}"


def interface_for(seat: Seat) -> str | None:
    """The interface that leads to the other hosts; empty: there are none, loopback will do.

    None: the master is not known yet, so the ranks will find out.
    """
    if not seat.master:
        return None
    if seat.local_size == seat.world_size:
        return ""
    host = interfaces.name_for_others(seat.master)
    if interfaces.is_loopback(host):
        return ""
    address = interfaces.address_towards(host, seat.port)
    return interfaces.interface_of(address) or ""


def meeting_for(seat: Seat) -> Meeting | None:
    """Where the sites meet; the first one holds the store there unless the engine does.

    None: the engine does not say, the ranks have to find out.

    Raises:
        UsageError: the address is not this machine's, or the port is taken.
    """
    if not seat.master:
        return None
    if seat.hosted:
        return Meeting(seat.master, seat.port, prefix_of(seat))
    alone = seat.local_size == seat.world_size
    host = seat.master if alone else interfaces.name_for_others(seat.master)
    if seat.rank > 0:
        return Meeting(host, seat.port, prefix_of(seat))
    socket = interfaces.listening_socket(host, seat.port)
    port = socket.getsockname()[1]
    return Meeting(host, port, prefix_of(seat), listening=socket.detach())
