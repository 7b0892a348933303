"""What the notes of all ranks come to: the first thing that is wrong."""

from __future__ import annotations

import time
from collections import Counter

from distdemo.sanitizer.matching import Matcher
from distdemo.sanitizer.notes import MOST_KNOWN, Made, Reader
from distdemo.sanitizer.records import CallCount, Finding
from distdemo.sanitizer.timeline import Timeline
from distdemo.sanitizer.waiting import behind, cycle, missed

SOON = 0.3  # seconds that torch gets to refuse a call, before what is wrong with it is told
GRACE = 1.0  # seconds that ranks get to come to a call at which something is wrong
STILL = 2  # looks in a row without a note after which what waits is taken to wait


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
        self._about: object = None  # what is wrong
        self._since = 0.0  # when that was first seen
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
        self.read()
        self._still = 0 if moved else self._still + 1
        matcher = self.matcher
        if matcher.stopped:
            return None
        found = matcher.first() or missed(matcher)
        if found is None and self._still >= STILL:
            found = cycle(matcher)
            if found is None:
                self._about = None
        if found is None:
            return None
        now = time.monotonic()
        about = matcher.found[0] if matcher.found else found.what
        if about is not self._about and (matcher.found or about != self._about):
            self._about, self._since = about, now
        # Those that come right after show who differs from whom, and who else waits.
        named = {rank for row in found.rows if row.place for rank in row.ranks}
        if now >= self._since + (SOON if matcher.settled(named) else GRACE):
            self.finding = found
        return self.finding

    def certain(self) -> Finding | None:
        """What is wrong whatever will come."""
        self.read()
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
        return missed(self.matcher) or cycle(self.matcher) or behind(self.matcher, running)

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
            key = (str(made.call), group, self.matcher.line(made.call.place))
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
                if isinstance(note, Made):
                    self._count(rank, note)
                self.matcher.take(rank, note)
                if self._timeline is not None:
                    self._timeline.take(rank, at, note)

    def _count(self, rank: int, made: Made) -> None:
        found = self._counts.get(id(made.call))
        if found is None:
            if len(self._counts) >= MOST_KNOWN:
                self._others[rank] += 1
                return
            place = made.call.place
            self.matcher.callers[place.file, place.line].add(place.caller)
            found = self._counts[id(made.call)] = (made, Counter())
        found[1][rank] += 1
