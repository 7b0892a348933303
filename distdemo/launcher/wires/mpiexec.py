"""Ranks under an MPI's own starter: it tells who is who, and the launcher starts the ranks.

mpiexec is given tiny processes to start (``shim.py``), which hand on what it tells them. The ranks
then come from the process that has torch loaded, once for all, as its own children: so all that
holds for a world on this machine holds here too: how ranks end, who is to blame, what is left.
"""

from __future__ import annotations

import select
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection

from distdemo.errors import UsageError
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.keeper import Keeper
from distdemo.launcher.records import Verdict, WorldSpec
from distdemo.launcher.wires import shim
from distdemo.launcher.wires.caller import Caller, greet
from distdemo.launcher.wires.confine import Confinement
from distdemo.launcher.wires.contract import Ticket, Wire
from distdemo.launcher.wires.starter import Starter, private_folder

GLANCE = 0.02  # seconds that a socket of mpiexec's daemons is open at most, and a look


class MpiexecWire(Wire):
    """One mpiexec, and the shims that it has started.

    Raises:
        UsageError: it can't be run; nothing of it is left then.
    """

    def __init__(self, world: WorldSpec, interrupts: Interrupts) -> None:
        self._size = world.world_size
        self._timeout = world.deadline
        self._deadline = time.monotonic() + world.deadline
        self._interrupts = interrupts
        self._callers: dict[int, Caller] = {}
        self._waiting: dict[int, tuple[tuple[str, Connection], ...]] = {}
        self._handed: tuple[tuple[str, Connection], ...] = ()
        assert world.mpi_start is not None  # noqa: S101 - tells the type checker why we are here
        with ExitStack() as undoing:  # of what was done, if what follows it fails
            folder = private_folder(self._size)
            undoing.callback(shutil.rmtree, folder, ignore_errors=True)
            keeper = Keeper([folder])  # before anything else is there that it would clean up
            undoing.callback(keeper.close, ended=False)
            self._door = undoing.enter_context(_door(folder, self._size))
            shims = (str(self._size), sys.executable, "-I", "-S", shim.__file__, f"{folder}/door")
            self._starter = Starter(world.mpi_start, shims, folder, keeper)
            undoing.pop_all()
        self._confinement = Confinement(self._starter.pid)
        self.listeners = (self._starter,)

    @property
    def trouble(self) -> Verdict | None:  # type: ignore[override]  # it comes and stays
        """That mpiexec has ended, if it has."""
        if not self._starter.over:
            return None
        return Verdict(
            "mpiexec ended before the ranks did.",
            self._starter.words() or "It said nothing.",
            "Run it by itself to see whether it works here: mpiexec -n 2 hostname.",
        )

    def ready(self, rank: int) -> bool:
        """Wait for the shim of this rank; False if a signal came first."""
        while rank not in self._callers:
            if self._interrupts.received is not None:
                return False
            if not self._somebody_comes():
                continue
            if self._starter.over:
                raise _failed(self._starter.words(), len(self._callers), self._size)
            self._welcome()
        return True

    def ticket(self, rank: int) -> Ticket:
        """What mpiexec has told its shim."""
        self._handed = self._waiting.pop(rank)
        told = self._callers[rank].told(self._starter.environment)
        return Ticket(tuple({**self._starter.settings, **told}.items()), self._handed)

    def started(self, rank: int) -> None:
        """Let go of what the rank speaks to mpiexec through."""
        for _, end in self._handed:
            end.close()
        self._handed = ()

    def descriptors(self) -> tuple[int, ...]:
        """The door, every line to a shim, and what the ranks to come will speak through."""
        lines = [self._door, *(caller.line for caller in self._callers.values())]
        ends = [end for sockets in self._waiting.values() for _, end in sockets]
        mine: Sequence[socket.socket | Connection] = (*lines, *ends)
        return *(each.fileno() for each in mine), *self._starter.descriptors()

    def close(self) -> None:
        """Let the shims go, and mpiexec with them."""
        self._door.close()
        for caller in self._callers.values():
            caller.line.close()
        for sockets in self._waiting.values():
            for _, end in sockets:
                end.close()
        self._starter.close()

    # ------------------------------------------------------------------------------ the shims

    def _somebody_comes(self) -> bool:
        """Wait for a shim, a signal or the end of mpiexec; False if it was no more than words.

        Before the first shim it looks now and then at what mpiexec has opened meanwhile.
        """
        left = self._deadline - time.monotonic()
        pause = left if self._callers else min(left, GLANCE)
        watch = select.poll()  # not select.select, which takes no descriptor beyond 1023
        for each in (self._door, self._starter, self._interrupts):
            watch.register(each, select.POLLIN | select.POLLHUP)
        came = {fd for fd, _ in watch.poll(max(0.0, pause) * 1000)}
        if not came and pause == left:
            raise _late(len(self._callers), self._size, self._timeout)
        if not self._callers:
            self._confinement.tighten()
        if self._starter.fileno() in came:
            self._starter.hear()
        return self._door.fileno() in came or self._starter.over

    def _welcome(self) -> None:
        line, _ = self._door.accept()
        try:
            caller = greet(line)
        except LookupError:
            line.close()
            raise _unnumbered() from None
        except (OSError, ValueError):
            line.close()  # not one of ours, or ended in this moment; mpiexec tells if it matters
            return
        self._callers[caller.rank] = caller
        self._waiting[caller.rank] = caller.sockets()


def _door(folder: str, ranks: int) -> socket.socket:
    """The socket at which the shims call.

    Raises:
        UsageError: it can't be opened there; the system takes paths of some 100 bytes.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(f"{folder}/door")
        made.listen(ranks)
    except OSError as error:
        made.close()
        raise UsageError(
            "The socket at which mpiexec's processes call back can't be opened.",
            f"{folder}/door: {error}.",
            "Set TMPDIR to a directory with a short path, such as /tmp.",
        ) from error
    return made


def _failed(words: str, came: int, size: int) -> UsageError:
    return UsageError(
        "mpiexec could not start the ranks." if not came else "mpiexec ended too soon.",
        words or f"It said nothing; {came} of {size} processes had come to life.",
        "Run it by itself to see whether it works here: mpiexec -n 2 hostname.",
    )


def _late(came: int, size: int, timeout: float) -> UsageError:
    return UsageError(
        f"mpiexec started {came} of {size} processes within {timeout:g} s.",
        "The others never called back.",
        "Give it longer with --timeout, start fewer ranks, or try mpiexec -n 2 hostname.",
    )


def _unnumbered() -> UsageError:
    return UsageError(
        "mpiexec does not tell its processes which rank they are.",
        "None of the variables of Open MPI, PMI and PMIx is set in them.",
        "Use the mpiexec that belongs to the MPI library: distdemo backends names both.",
    )
