"""Find the first error in the notes of all ranks."""

from __future__ import annotations

import time
from collections import Counter

from distdemo.sanitizer.matching import Matcher
from distdemo.sanitizer.notes import MAX_KNOWN, CallNote, Reader
from distdemo.sanitizer.records import CallCount, Finding
from distdemo.sanitizer.timeline import Timeline
from distdemo.sanitizer.waiting import find_cycle, late_ranks, missing_call

REFUSAL_TIMEOUT_S = 0.3  # time for torch to reject a bad call before it is reported
OTHER_RANKS_TIMEOUT_S = 1.0  # time for more ranks to reach a call that is wrong
IDLE_POLLS = 2  # polls in a row without a note after which waiting ranks count as blocked


class Judge:
    """Reads the notes of one world and decides when a finding is certain.

    Args:
        world_size: Number of ranks.
        timeline: Timeline that gets every note with a time, or None.

    Attributes:
        matcher: Comparison of the calls.
        finding: Finding, or None so far.
    """

    def __init__(self, world_size: int, timeline: Timeline | None = None) -> None:
        self.matcher = Matcher(world_size)
        self.finding: Finding | None = None
        self._readers = [Reader() for _ in range(world_size)]
        self._new = [bytearray() for _ in range(world_size)]
        self._received = False
        self._idle_polls = 0
        self._candidate: object = None  # finding that isn't certain yet
        self._candidate_since = 0.0  # time at which it was first seen
        self._timeline = timeline
        self._counts: dict[int, tuple[CallNote, Counter[int]]] = {}
        self._uncounted: Counter[int] = Counter()  # calls beyond MAX_KNOWN, by rank

    def feed(self, rank: int, piece: bytes) -> None:
        """Add new notes of a rank; ``poll`` reads them."""
        self._received = True
        self._new[rank] += piece

    def poll(self) -> Finding | None:
        """Return a finding if it is certain."""
        if self.finding is not None:
            return self.finding
        moved, self._received = self._received, False
        self.read()
        self._idle_polls = 0 if moved else self._idle_polls + 1
        matcher = self.matcher
        if matcher.stopped:
            return None
        found = matcher.first() or missing_call(matcher)
        if found is None and self._idle_polls >= IDLE_POLLS:
            found = find_cycle(matcher)
            if found is None:
                self._candidate = None
        if found is None:
            return None
        now = time.monotonic()
        about = matcher.found[0] if matcher.found else found.what
        if about is not self._candidate and (matcher.found or about != self._candidate):
            self._candidate, self._candidate_since = about, now
        # Calls that arrive right after show which ranks differ, and which others wait.
        named = {rank for row in found.rows if row.place for rank in row.ranks}
        if now >= self._candidate_since + (
            REFUSAL_TIMEOUT_S if matcher.settled(named) else OTHER_RANKS_TIMEOUT_S
        ):
            self.finding = found
        return self.finding

    def certain(self) -> Finding | None:
        """Return the finding that later calls can't change, or None."""
        self.read()
        return self.matcher.first()

    def conclude(self, running: dict[int, str]) -> Finding | None:
        """Return the finding once no rank will make another call.

        Args:
            running: Ranks still running, and their source lines.

        Returns:
            The finding, with an empty `what` if ranks are late for an unknown reason.
        """
        certain = self.certain()
        if certain is not None or self.matcher.stopped:
            return certain
        return (
            missing_call(self.matcher)
            or find_cycle(self.matcher)
            or late_ranks(self.matcher, running)
        )

    def give_up(self, why: str) -> None:
        """Stop comparing after an internal error; later notes are only read."""
        self.matcher.stop(why)
        self._timeline = None

    def calls(self) -> tuple[CallCount, ...]:
        """Return the calls in the order in which they first occurred, with their counts."""
        together: dict[tuple[str, str, str], Counter[int]] = {}
        for made, counts in self._counts.values():
            members, backend, nth = made.group
            if backend == "init":  # init_process_group, which files don't have
                continue
            group = self.matcher.group(members, backend, nth).name(self.matcher.world_size)
            key = (str(made.call), group, self.matcher.line(made.call.place))
            together.setdefault(key, Counter()).update(counts)
        found = []
        for (did, group, place), counts in together.items():
            for count in sorted(set(counts.values()), reverse=True):
                ranks = tuple(sorted(rank for rank, each in counts.items() if each == count))
                found.append(CallCount(did, group, place, ranks, count))
        for count in sorted(set(self._uncounted.values()), reverse=True):
            ranks = tuple(sorted(rank for rank, each in self._uncounted.items() if each == count))
            found.append(CallCount("other calls", "", "", ranks, count))
        return tuple(found)

    # ---------------------------------------------------------------------------------- reading

    def read(self) -> None:
        """Read every note that has arrived."""
        for rank, (reader, piece) in enumerate(zip(self._readers, self._new, strict=True)):
            if not piece:
                continue
            text = bytes(piece)
            piece.clear()  # first, so that nothing is read twice
            for at, note in reader.read(text):
                if isinstance(note, CallNote):
                    self._count(rank, note)
                self.matcher.add(rank, note)
                if self._timeline is not None:
                    self._timeline.add(rank, at, note)

    def _count(self, rank: int, made: CallNote) -> None:
        found = self._counts.get(id(made.call))
        if found is None:
            if len(self._counts) >= MAX_KNOWN:
                self._uncounted[rank] += 1
                return
            place = made.call.place
            self.matcher.callers[place.file, place.line].add(place.caller)
            found = self._counts[id(made.call)] = (made, Counter())
        found[1][rank] += 1
