"""What the notes of all ranks come to, in whatever way they arrive: the first thing that is wrong.

Most programs make the same few calls over and over, and all ranks note the same text. So texts are
compared before they are read: what is alike on all ranks, and consists of calls that were compared
once, is counted and not read, at a small part of the cost.
"""

from __future__ import annotations

import time
from collections import Counter

from distdemo.sanitizer.matching import Matcher
from distdemo.sanitizer.notes import MOST_KNOWN, Made, Reader
from distdemo.sanitizer.records import CallCount, Finding
from distdemo.sanitizer.timeline import Timeline
from distdemo.sanitizer.waiting import behind, missed, stuck

GRACE = 1.0  # seconds that ranks get to come to a call at which others differ
STILL = 2  # looks in a row without a note after which what waits is taken to wait
WORTH = 64  # bytes of text that are alike, from which on they are not read


class Judge:
    """The notes of one world's ranks, and what is wrong.

    Args:
        world_size: how many ranks.
        timeline: gets every note that has a time; None: nothing does.

    Attributes:
        matcher: the comparison.
        finding: what is wrong; None: nothing is, as far as is known.
    """

    def __init__(self, world_size: int, timeline: Timeline | None = None) -> None:
        self.matcher = Matcher(world_size)
        self.finding: Finding | None = None
        self._readers = [Reader() for _ in range(world_size)]
        self._new = [bytearray() for _ in range(world_size)]
        self._heard = False
        self._still = 0
        self._since = 0.0  # when calls were first seen to differ
        self._timeline = timeline
        self._counts: dict[int, tuple[Made, Counter[int]]] = {}
        self._others: Counter[int] = Counter()  # calls that are one too many to be told apart

    def feed(self, rank: int, piece: bytes) -> None:
        """Take what a rank has noted since; it is looked at by ``look``."""
        self._heard = True
        self._new[rank] += piece

    def look(self) -> Finding | None:
        """What is certain by now."""
        if self.finding is not None:
            return self.finding
        moved, self._heard = self._heard, False
        if moved and self._count_alike():
            self._still = 0
            return None  # the rest may become alike, too
        moved = moved or any(self._new)
        self.read()
        self._still = 0 if moved else self._still + 1
        matcher = self.matcher
        if not matcher.suspects:
            self._since = 0.0
        if matcher.stopped:
            return None
        if matcher.suspects:
            # Those that come to the same call right after show who differs from whom.
            self._since = self._since or time.monotonic()
            if matcher.settled(matcher.suspects[0]) or time.monotonic() > self._since + GRACE:
                self.finding = matcher.mismatch(matcher.suspects[0])
        elif matcher.found:
            self.finding = matcher.first()
        elif self._still >= 1:
            self.finding = stuck(matcher) if self._still >= STILL else missed(matcher)
        return self.finding

    def certain(self) -> Finding | None:
        """What is wrong whatever will come."""
        self.read()
        if self.matcher.suspects:
            return self.matcher.mismatch(self.matcher.suspects[0])
        return self.matcher.first()

    def conclude(self, running: dict[int, str]) -> Finding | None:
        """What can be said when no rank will do anything any more.

        Args:
            running: ranks that have not ended, and where each was.

        Returns:
            Without words where ranks are late and nobody knows why.
        """
        certain = self.certain()
        if certain is not None or self.matcher.stopped:
            return certain
        return stuck(self.matcher) or behind(self.matcher, running)

    def give_up(self, why: str) -> None:
        """Something is wrong in here: from now on only take what comes."""
        self.matcher.stop(why)
        self._timeline = None

    def calls(self) -> tuple[CallCount, ...]:
        """What was called, in the order of the first time: a row for all that did it alike."""
        together: dict[tuple[str, str, str], Counter[int]] = {}
        for made, counts in self._counts.values():
            members, backend, nth = made.group
            if backend == "init":  # the making of the default group, which files don't have
                continue
            group = self.matcher.group(members, backend, nth).name(self.matcher.world_size)
            key = (str(made.call), group, str(made.call.place))
            together.setdefault(key, Counter()).update(counts)
        found = []
        for (did, group, place), counts in together.items():
            for count in sorted(set(counts.values()), reverse=True):
                ranks = tuple(sorted(rank for rank, each in counts.items() if each == count))
                found.append(CallCount(did, group, place, ranks, count))
        for count in sorted(set(self._others.values()), reverse=True):
            ranks = tuple(sorted(rank for rank, each in self._others.items() if each == count))
            found.append(CallCount("other calls", "", "", ranks, count))
        return tuple(found)

    # ---------------------------------------------------------------------------------- reading

    def read(self) -> None:
        """Read every note that has come."""
        for rank, (reader, piece) in enumerate(zip(self._readers, self._new, strict=True)):
            if not piece:
                continue
            text = bytes(piece)
            piece.clear()  # first, so that nothing is taken twice
            for at, note in reader.read(text):
                self.matcher.take(rank, note)
                if isinstance(note, Made):
                    self._count(rank, note, 1)
                if self._timeline is not None:
                    self._timeline.take(rank, at, note)

    def _count(self, rank: int, made: Made, times: int) -> None:
        found = self._counts.get(id(made.call))
        if found is None:
            if len(self._counts) >= MOST_KNOWN:
                self._others[rank] += times
                return
            found = self._counts[id(made.call)] = (made, Counter())
        found[1][rank] += times

    def _count_alike(self) -> bool:
        """Count the text with which all ranks' notes begin, if it can be; whether it could."""
        text = self._alike()
        if len(text) < WORTH or not self.matcher.in_step:
            return False
        lines = text.split(b"\n")[:-1]
        counts = Counter(lines)
        returns = counts.pop(b"r", 0)
        alike: list[tuple[dict[int, Made], int]] = []
        for number in reversed(dict.fromkeys(reversed(lines))):  # in the order of the last time
            if number == b"r":
                continue
            if not number.isdigit():
                return False
            found = {rank: reader.known(number) for rank, reader in enumerate(self._readers)}
            known = {rank: made for rank, made in found.items() if made is not None}
            if len(known) < len(found):
                return False
            alike.append((known, counts[number]))
        if returns != sum(times for known, times in alike if known[0].call.sync):
            return False
        if not self.matcher.take_alike(alike):
            return False
        for known, times in alike:
            for rank, each in known.items():
                self._count(rank, each, times)
        for piece in self._new:
            del piece[: len(text)]
        return True

    def _alike(self) -> bytes:
        """The whole lines with which all ranks' texts begin, up to one after which none waits."""
        if not all(reader.idle for reader in self._readers):
            return b""
        shortest = bytes(min(self._new, key=len))
        for piece in self._new:
            if not piece.startswith(shortest):
                low, high = 0, len(shortest)
                while low < high:
                    middle = (low + high + 1) // 2
                    low, high = (
                        (middle, high) if piece.startswith(shortest[:middle]) else (low, middle - 1)
                    )
                shortest = shortest[:low]
        return shortest[: shortest.rfind(b"r\n") + 2] if b"r\n" in shortest else b""
