"""What every site of a joined world does: start its ranks, hear its herald, let the ranks go.

A site is one process that an engine started (or a person, in a terminal), with the ranks that it
looks after: one under torchrun, mpiexec and srun, several where a node starts its own.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any

from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.joined import codec
from distdemo.launcher.joined.herald import Herald
from distdemo.launcher.joined.link import Message, linked
from distdemo.launcher.joined.place import TcpRendezvous, interface_for, meeting_for, prefix_of
from distdemo.launcher.joined.through_mpi import MpiRendezvous, Offers, check_bridge, offers
from distdemo.launcher.local_ranks import LocalRanks
from distdemo.launcher.start_method import StartMethod, choose
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.workers import Workers

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from distdemo.launcher.joined.errand import Errand
    from distdemo.launcher.joined.meeting import Meeting
    from distdemo.launcher.joined.seat import Seat
    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import Rendezvous

FAREWELL = 5.0  # seconds for ranks to end together, on several hosts and over MPI


class Post:
    """This process's part in a world of several sites: its herald, and its ranks.

    Args:
        seat: which part that is.
        errand: what all sites have to have been asked for.
        patience: seconds that the other sites may take to appear.
    """

    def __init__(self, seat: Seat, errand: Errand, patience: float) -> None:
        load_torch()
        self.seat = seat
        self.host = socket.gethostname()
        self._meeting = meeting_for(seat)
        self._offers = None if self._meeting else _offers(seat)
        self._interface = interface_for(seat)
        self._link, theirs = linked()
        self._herald = self._fork_herald(Herald(seat, errand.digest, theirs, patience))
        theirs.close()
        # The herald holds the store; here its socket would go on listening after the herald's end.
        for each in (self._meeting, *(self._offers.all if self._offers else ())):
            if each is not None and each.listening is not None:
                os.close(each.listening)

    def _fork_herald(self, herald: Herald) -> BaseProcess:
        import torch.multiprocessing as mp

        mine = self._link

        def live() -> None:
            mine.close()
            herald.live(self._meeting)

        process = mp.get_context("fork").Process(target=live, name="herald")
        process.start()
        return process

    # ------------------------------------------------------------------------------ one world

    def workers(self, world: WorldSpec, number: int, interrupts: Interrupts) -> Workers:
        """The ranks of this site in the world of this number."""
        seat, prefix = self.seat, f"{prefix_of(self.seat)}/world{number}"
        place: Rendezvous = MpiRendezvous(
            prefix, self._offers, alone=seat.local_size == seat.world_size
        )
        if self._meeting is not None:
            place = TcpRendezvous(self._meeting.host, self._meeting.port, prefix)
        ranks = seat.ranks_of(seat.site)
        site = LocalRanks(ranks, place, seat.local_rank, self._interface, FAREWELL)
        # The engine has seen to it that the processes of an MPI find each other.
        mine = replace(world, mpi_start=None)
        return Workers(mine, site, self.method(world), interrupts, self._link.descriptors())

    @property
    def met(self) -> bool:
        """Whether it is known where the others can be told anything."""
        return self._meeting is not None

    def meet(self, meeting: Meeting) -> None:
        """Where the store is, as this site's rank has found out."""
        if self._meeting is None:
            self._meeting = meeting
            self._link.send("meet", meeting)

    def answer(self) -> None:
        """Tell the herald that this process is up; it tells the others that the site is alive."""
        self._link.send("up")

    def interrupted(self) -> None:
        """Tell the herald that a signal came: what ends after it was not killed."""
        self._link.send("interrupted")

    def method(self, world: WorldSpec) -> StartMethod:
        """How this site starts the processes of its ranks."""
        return choose(world.start_method, world.device)

    def send(self, way: str, kind: str, **words: Any) -> None:  # noqa: ANN401 - what the codec takes
        """Say something to the herald for the others.

        Args:
            way: ``post``, to the leader, or ``order``, to all.
            kind: of what is said.
            words: all that belongs to it.
        """
        self._link.send(way, codec.encode({"kind": kind, **words}))

    def wait(
        self,
        interrupts: Interrupts | None,
        note: Callable[[Message], object],
        until: Callable[[], bool],
        deadline: float,
    ) -> bool:
        """Hear the herald until a condition holds; False: time ran out, or a signal came.

        Args:
            interrupts: signals that end the wait; None: none does.
            note: called with each message.
            until: the condition, looked at after each message and now and then.
            deadline: on the monotonic clock.
        """
        ears = poll()
        ears.register(self._link.fileno(), POLLIN)
        if interrupts is not None and interrupts.received is None:
            ears.register(interrupts.fileno(), POLLIN)
        while not until():
            left = deadline - time.monotonic()
            signalled = interrupts is not None and interrupts.received is not None
            if left <= 0 or signalled or self._link.closed:
                return False
            ears.poll(1000 * min(left, 0.05))
            for message in self._link.receive():
                note(message)
        return True

    @property
    def link(self) -> Any:  # noqa: ANN401 - for the watch alone
        """To the herald."""
        return self._link

    def leave(self, patience: float = FAREWELL) -> None:
        """Let the herald go; it takes its leave of the others first, for so many seconds."""
        self._link.close()
        self._herald.join(patience)
        if self._herald.exitcode is None:
            self._herald.kill()
            self._herald.join()


def _offers(seat: Seat) -> Offers | None:
    """Where this site could hold the store, if it is the first; the ranks will choose."""
    check_bridge()
    return offers(prefix_of(seat)) if seat.site == 0 else None
