"""Which ranks of a large world are shown: the ends, and every one that is not like the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

MANY = 16  # ranks up to which all are shown
ENDS = 4  # of more than that: these many from each end


class Ranked(Protocol):
    """Anything that belongs to a rank."""

    @property
    def rank(self) -> int:
        """The rank that it belongs to."""


Item = TypeVar("Item", bound=Ranked)


def select(
    items: Sequence[Item], ranks: frozenset[int] | None, is_odd: Callable[[Item], bool]
) -> Iterator[Item | int]:
    """The items to show, and between them how many were left out.

    Args:
        items: one a rank, in order.
        ranks: those that the user wants to see; None: the default choice.
        is_odd: whether an item must be shown wherever it stands.
    """
    if ranks is not None:
        yield from (item for item in items if item.rank in ranks)
        return
    skipped = 0
    for place, item in enumerate(items):
        at_end = place < ENDS or place >= len(items) - ENDS
        if len(items) <= MANY or at_end or is_odd(item):
            if skipped:
                yield skipped
            skipped = 0
            yield item
        else:
            skipped += 1
