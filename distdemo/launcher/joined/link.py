"""A site and its herald: two processes, a pipe each way, small tuples on them.

The site's process starts ranks and watches them; it must never wait on a network. Its herald does
nothing else: it holds the connection to the store that all sites share.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distdemo.launcher.channel import Receiver, framed

TAKES = 8.0  # seconds for the other process to take something from a full pipe

Message = tuple[Any, ...]


class Link:
    """One end of the two pipes.

    Attributes:
        closed: the other process has gone, or takes nothing any more.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._receiver = Receiver(reading)
        self._stuck = False
        os.set_blocking(writing, False)

    @property
    def closed(self) -> bool:
        """Whether the other process has gone, or takes nothing any more."""
        return self._receiver.closed or self._stuck

    def fileno(self) -> int:
        """Readable when the other process has said something, or has gone."""
        return self._reading

    def descriptors(self) -> tuple[int, int]:
        """Both pipes, for a forked rank to close."""
        return self._reading, self._writing

    def receive(self) -> list[Message]:
        """What came, without waiting."""
        return self._receiver.receive()

    def send(self, *message: Any) -> None:  # noqa: ANN401 - anything that pickles
        """Say something; that the other has gone is noticed by reading.

        Waits while the pipe is full, but not for long: whoever takes nothing for ``TAKES`` is stuck
        on its network, and counts as gone.
        """
        view = memoryview(framed(message))
        with suppress(BrokenPipeError):
            while view and not self._stuck:
                view = view[self._write(view) :]

    def _write(self, view: memoryview) -> int:
        try:
            return os.write(self._writing, view)
        except BlockingIOError:
            room = select.poll()
            room.register(self._writing, select.POLLOUT)
            self._stuck = not room.poll(1000 * TAKES)
            return 0

    def close(self) -> None:
        """Let go of it; the other process then sees us gone."""
        os.close(self._reading)
        os.close(self._writing)


def linked() -> tuple[Link, Link]:
    """Both ends: the site's and the herald's."""
    site_reads, herald_writes = os.pipe()
    herald_reads, site_writes = os.pipe()
    return Link(site_reads, site_writes), Link(herald_reads, herald_writes)


class Ear:
    """Hears the herald while ranks run (a ``Listener`` of the launcher's watch).

    Args:
        link: the site's end.
        note: called with each message.
        over: says whether the world is of no more use.
    """

    def __init__(
        self, link: Link, note: Callable[[Message], object], over: Callable[[], bool]
    ) -> None:
        self._link = link
        self._note = note
        self._over = over

    @property
    def over(self) -> bool:
        """Whether the world is of no more use."""
        return self._over()

    def fileno(self) -> int:
        """The pipe from the herald."""
        return self._link.fileno()

    def hear(self) -> bool:
        """Take what came; False when the herald has gone."""
        for message in self._link.receive():
            self._note(message)
        return not self._link.closed
