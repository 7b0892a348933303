"""What the ranks of a user program get, which ours don't need; see ``UserProgram``.

In the launcher: which standard input a rank has, and the clean-up of what it has started itself.
In the rank: a session of its own, that input, and Ctrl-C as Python programs know it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from distdemo.launcher.keeper import Keeper
from distdemo.launcher.orphans import Orphans
from distdemo.launcher.sweeper import kill_session

if TYPE_CHECKING:
    from distdemo.launcher.rank import Assignment
    from distdemo.launcher.records import UserProgram


class Household:
    """The sessions of a guest's ranks: whatever was started in one ends with the world.

    A small process looks after them, so that they end too when this one is killed. Processes that
    have left their rank's session for one of their own, as daemons do, end with the world as well;
    only where this process is killed do they stay.

    Raises:
        UsageError: that process can't be started.
    """

    def __init__(self) -> None:
        self._keeper = Keeper([])
        self._orphans = Orphans()
        self._sessions: list[int] = []

    def watch(self, pid: int | None) -> None:
        """A rank has been started; its session has the number of its process."""
        if pid is not None:
            self._sessions.append(pid)
            self._keeper.watch(pid)

    def descriptors(self) -> tuple[int, ...]:
        """What a forked rank has to close."""
        return self._keeper.descriptors()

    def clear(self) -> None:
        """The ranks have ended: end what they have left."""
        if not self._keeper.close(ended=False):
            for session in self._sessions:
                kill_session(session)
        self._orphans.end()


def stdin_of(guest: UserProgram | None, rank: int) -> Connection | None:
    """This process's standard input for the rank that reads it; None for all others."""
    if guest is None or rank != guest.stdin:
        return None
    with suppress(OSError):  # there is none
        return Connection(os.dup(0), writable=False)
    return None


def settle(assignment: Assignment) -> None:
    """In the rank: lead a session, take the standard input, and be open to Ctrl-C."""
    with suppress(OSError):  # it leads one already
        os.setsid()
    _take_stdin(assignment.stdin)
    if assignment.output is not None:
        _take_output()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _take_output() -> None:
    """Standard output and error as the launcher reads them: in UTF-8, each line as it is done.

    Those that a forked rank has inherited may be of another encoding, keep back what was written,
    as Python does where it writes to a pipe, or not lead to descriptors 1 and 2 at all.
    """
    for name, fd in (("stdout", 1), ("stderr", 2)):
        # Python's own stay open as long.
        stream = open(  # noqa: SIM115
            fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)


def _take_stdin(given: Connection | None) -> None:
    """Standard input, for Python and for C: what was given, or one that is at its end."""
    if given is None:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        if nowhere:
            os.close(nowhere)
    else:
        os.dup2(given.fileno(), 0)
        given.close()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - Python's own stays open as long
