"""What ranks do at the same time: when all have begun, and when all are through with what counts.

Ranks leave a meeting in the world's store up to some 10 ms apart, and a measurement of all at once
is not much longer. So each goes on doing the same, uncounted, before the last has begun and until
the last is through: none is ever alone while its work counts.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from distdemo.bench.page import shared_page

if TYPE_CHECKING:
    from distdemo.bench.page import Page
    from distdemo.launcher.rank import Rank

LINE = 8  # words of a cache line: two ranks never write into the same one
BEGUN, THROUGH = 1, 2
MARGIN = 0.05  # seconds by which ranks leave a meeting apart, at most, where nothing tells
PATIENCE = 2.0  # seconds after which one that does not come is not waited for


class Company(Protocol):
    """The others who do the same."""

    def begun(self) -> bool:
        """This rank has; whether all have."""

    def through(self) -> bool:
        """This rank is through with what counts; whether all are."""

    def close(self) -> None:
        """Give back what it needs."""


class PageCompany:
    """They tell through memory that all share."""

    def __init__(self, page: Page, rank: int, world_size: int) -> None:
        self._page = page
        self._mine = rank * LINE
        self._all = tuple(other * LINE for other in range(world_size))
        self._since: dict[int, float] = {}

    def begun(self) -> bool:
        """This rank has; whether all have."""
        return self._reached(BEGUN)

    def through(self) -> bool:
        """This rank is through with what counts; whether all are."""
        return self._reached(THROUGH)

    def _reached(self, stage: int) -> bool:
        words = self._page.words
        words[self._mine] = stage
        late = perf_counter() - self._since.setdefault(stage, perf_counter()) > PATIENCE
        return late or all(words[each] >= stage for each in self._all)

    def close(self) -> None:
        """Give the memory back."""
        self._page.close()


class TimedCompany:
    """Nothing tells: it is left to time."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def begun(self) -> bool:
        """Whether all have begun, in all likelihood."""
        return self._passed(BEGUN)

    def through(self) -> bool:
        """Whether all are through, in all likelihood."""
        return self._passed(THROUGH)

    def _passed(self, stage: int) -> bool:
        now = perf_counter()
        return now - self._since.setdefault(stage, now) > MARGIN

    def close(self) -> None:
        """Nothing."""


def company(rank: Rank, place: str) -> Company:
    """Collective: the best there is here.

    Args:
        rank: this rank of the world.
        place: a name that no other company of the world had.
    """
    page = shared_page(rank, f"company/{place}", rank.world_size * LINE * 8)
    return TimedCompany() if page is None else PageCompany(page, rank.rank, rank.world_size)
