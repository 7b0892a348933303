"""What every wire is: a ticket for each rank, and something to listen to while ranks run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launcher.records import Verdict
    from distdemo.launcher.watch import Listener

STRANGE = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "MPI_LOCAL", "HYDI_", "PALS_")
"""How the variables begin by which another starter tells a process that it is its rank."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What one rank needs to find the others. It travels to the rank under every start method.

    Attributes:
        environment: names and values that its environment gets.
        sockets: what it speaks through, and the variable that names the descriptor.
    """

    environment: tuple[tuple[str, str], ...] = ()
    sockets: tuple[tuple[str, Connection], ...] = ()

    def redeem(self) -> None:
        """In the rank: have its environment say all this, and nothing of another world.

        The descriptors stay open until the process ends: a library speaks through them then.
        """
        if not self.environment:
            return
        for name in [name for name in os.environ if name.startswith(STRANGE)]:
            del os.environ[name]
        os.environ.update(self.environment)
        for name, end in self.sockets:
            os.environ[name] = str(os.dup(end.fileno()))
            end.close()


class Wire:
    """The wire of ranks that need none; the others inherit from it.

    Attributes:
        trouble: what is wrong with the wire itself; None: nothing is.
        listeners: what has to be heard while the ranks run.
    """

    trouble: Verdict | None = None
    listeners: Sequence[Listener] = ()

    def ready(self, rank: int) -> bool:
        """Wait until this rank can be started; False if a signal came first.

        Raises:
            UsageError: it can't be.
        """
        return True

    def ticket(self, rank: int) -> Ticket:
        """What the rank gets; asked once, when it is ready."""
        return Ticket()

    def started(self, rank: int) -> None:
        """The rank holds its ticket: let go of it here, and hear those that run already."""

    def descriptors(self) -> tuple[int, ...]:
        """What a forked rank finds open and must close; its own ticket is not among it."""
        return ()

    def close(self) -> None:
        """When every rank is gone: leave nothing behind."""
