"""Where the sites of a world meet: a store over TCP that one of them, or the engine, holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the store of the sites is.

    Attributes:
        host: its address.
        port: its port.
        prefix: before all keys, so that several worlds can share a store.
        listening: the socket on which this site holds the store itself; None: another one does.
        litter: files in memory that the ranks of this site share, which stay if they are killed.
    """

    host: str
    port: int
    prefix: str
    listening: int | None = None
    litter: tuple[str, ...] = ()
