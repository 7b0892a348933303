"""Whose turn it is, handed from pair to pair.

All other ranks sleep meanwhile, so that they take neither cores nor wires from those who measure.
A world's store is no place to wait in: in a file it is looked into a hundred times a second by
every sleeper, and each of thousands of turns begins up to 10 ms late. Where ranks share memory, the
turn is a number in it, and a rank looks the more rarely the further its own turn is away.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from distdemo.bench.page import shared_page

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from distdemo.bench.page import Page
    from distdemo.launcher.rank import Rank

NAP = 0.001  # seconds for each turn that is still to pass; a turn takes longer
LONGEST = 0.05  # seconds, of a nap


class Baton(Protocol):
    """Says when a turn may begin."""

    def wait(self, number: int) -> None:
        """Return when the turn of this number may begin."""

    def hand_on(self, number: int) -> None:
        """The turn of this number may begin: the one before is over."""

    def close(self) -> None:
        """Give back what it needs."""


class PageBaton:
    """Through memory that the ranks share."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def wait(self, number: int) -> None:
        """Return when the turn of this number may begin."""
        words = self._page.words
        while (ahead := number - words[0]) > 0:
            time.sleep(min(LONGEST, NAP * ahead))

    def hand_on(self, number: int) -> None:
        """The turn of this number may begin: the one before is over."""
        self._page.words[0] = number

    def close(self) -> None:
        """Give the memory back."""
        self._page.close()


class StoreBaton:
    """Through the world's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def wait(self, number: int) -> None:
        """Return when the turn of this number may begin."""
        if number:
            self._store.wait([str(number)])

    def hand_on(self, number: int) -> None:
        """The turn of this number may begin: the one before is over."""
        self._store.set(str(number), "")

    def close(self) -> None:
        """Nothing: the store is the world's."""


def baton(rank: Rank) -> Baton:
    """Collective: the best one here."""
    page = shared_page(rank, "links", 8)
    return StoreBaton(rank.store("links")) if page is None else PageBaton(page)
