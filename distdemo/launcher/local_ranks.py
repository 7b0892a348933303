"""Where ranks live: the part of a world that one process starts and looks after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.launcher.elastic import AgentRendezvous
    from distdemo.launcher.rendezvous import Rendezvous


@dataclass(frozen=True, slots=True)
class LocalRanks:
    """The ranks of a world that one process starts, and how they meet the others.

    Attributes:
        ranks: their numbers; those of a world on one machine are all of it.
        rendezvous: where the ranks of the whole world find each other.
        local_rank: the number of the first of them among those of its host; it chooses the GPU.
        interface: the network interface that backends take where the user named none; empty: the
            loopback interface, whatever the user named, as nobody else needs to reach us; None:
            it turns out at the rendezvous.
        farewell: seconds that ranks which went well get to end by themselves.
    """

    ranks: range
    rendezvous: Rendezvous | AgentRendezvous
    local_rank: int = 0
    interface: str | None = ""
    farewell: float = 0.7
