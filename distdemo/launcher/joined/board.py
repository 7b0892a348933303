"""What the sites of a world write for each other into the store that they share.

Posts are for the leader, orders for all; each kind is numbered from 1. Beside them lie the signs of
life, who has taken which seat, and what was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

PART = 1 << 20  # characters that go into one value: a store takes none above 8 MiB


@dataclass(slots=True)
class Board:
    """The store, as one site uses it.

    Attributes:
        store: shared by all sites of this world, and by nobody else.
        site: the number of this site.
        came: it was counted among those that come.
    """

    store: Store
    site: int
    came: bool = False
    _beats: int = 0
    _texts: int = 0
    _heard: dict[int, tuple[bytes, float]] = field(default_factory=dict)

    # ------------------------------------------------------------------------ posts and orders

    def write(self, kind: str, text: str, between: Callable[[], object]) -> None:
        """Write a text in parts, then its number, so that there is no long wait between the two.

        Args:
            kind: ``post`` or ``order``.
            text: of any length.
            between: called after each part, as a slow network takes its time.
        """
        self._texts += 1
        starts = range(0, max(1, len(text)), PART)
        for part, start in enumerate(starts):
            self.store.set(
                self._part(kind, self.site, self._texts, part), text[start : start + PART]
            )
            between()
        number = self.store.add(f"{kind}s", 1)
        self.store.set(f"{kind}/{number}", f"{self.site} {self._texts} {len(starts)}")

    def has(self, kind: str, number: int) -> bool:
        """Whether the text of this number is there, all of it."""
        return bool(self.store.check([f"{kind}/{number}"]))

    def read(self, kind: str, number: int) -> str:
        """The text of this number, which is there."""
        site, text, count = map(int, self.store.get(f"{kind}/{number}").decode().split())
        keys = [self._part(kind, site, text, part) for part in range(count)]
        return "".join(self.store.get(key).decode() for key in keys)

    @staticmethod
    def _part(kind: str, site: int, text: int, part: int) -> str:
        return f"{kind}/of/{site}/{text}/{part}"

    def announced(self, kind: str) -> int:
        """The number of the last text, which may not be there yet."""
        return int(self.store.add(f"{kind}s", 0))

    # -------------------------------------------------------------------------------- the seat

    def is_taken(self) -> bool:
        """Take the seat; whether somebody else had it before."""
        return bool(self.store.add(f"seat/{self.site}", 1) > 1)

    def ask(self, digest: str) -> None:
        """Write what all have to have been asked for."""
        self.store.set("errand", digest)

    def asked(self) -> str:
        """What the leader wrote there; empty while it has not."""
        return self.store.get("errand").decode() if self.store.check(["errand"]) else ""

    def come(self) -> None:
        """Count this site among those that will leave."""
        self.store.add("came", 1)
        self.came = True

    def leave(self) -> None:
        """Count this site among those that have left."""
        self.store.add("left", 1)

    def all_left(self) -> bool:
        """Whether all that came have left."""
        return bool(self.store.add("left", 0) >= self.store.add("came", 0))

    # --------------------------------------------------------------------------- signs of life

    def beat(self) -> None:
        """Give a sign of life."""
        self._beats += 1
        self.store.set(f"beat/{self.site}", str(self._beats))

    def silence(self, sites: Iterable[int]) -> dict[int, float]:
        """Seconds since the last new sign of life of each of these sites that has given one."""
        now = time.monotonic()
        for site in sites:
            if self.store.check([f"beat/{site}"]):
                beat = self.store.get(f"beat/{site}")
                if self._heard.get(site, (b"", 0.0))[0] != beat:
                    self._heard[site] = (beat, now)
        return {site: now - at for site, (_, at) in self._heard.items()}
