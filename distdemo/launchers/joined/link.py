"""A site and its herald: two processes, a pipe each way, small tuples on them.

The site's process starts ranks and watches them; it must never wait on a network. Its herald does
nothing else: it holds the connection to the store that all sites share.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distdemo.launchers.channel import Receiver, Sender

Message = tuple[Any, ...]


class Link:
    """One end of the two pipes.

    Attributes:
        closed: the other process has gone.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._receiver = Receiver(reading)
        self._sender = Sender(writing)

    @property
    def closed(self) -> bool:
        """Whether the other process has gone."""
        return self._receiver.closed

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
        """Say something; that the other has gone is noticed by reading."""
        with suppress(BrokenPipeError):
            self._sender.send(*message)

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
