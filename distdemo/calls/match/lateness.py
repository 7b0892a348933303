"""Find the ranks that other ranks wait for, from the times in the notes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from distdemo.calls.match.matching import MAX_PENDING
from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.state import Entry
from distdemo.calls.notes import CallNote, Note, ReturnNote, WaitNote
from distdemo.calls.records import LateRank, SourceLine

MAX_WAITS = 1000  # latest waits for a rank on one line, for the median


@dataclass(slots=True)
class Late:
    """A rank that other ranks waited for, in the calls of one line.

    Attributes:
        last: Number of calls that it made after a rank that needs its data.
        total: Total time that other ranks waited for it, in µs.
        waits: Latest of these times.
    """

    last: int = 0
    total: int = 0
    waits: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_WAITS))


@dataclass(slots=True)
class Arrival:
    """Time at which a rank made a call, in µs.

    Attributes:
        waits_from: Time from which it waits for the call, or None so far.
        until: Time at which the last rank that it needs made the call, or None so far.
        late: That rank.
    """

    at: int
    waits_from: int | None = None
    until: int | None = None
    late: Late | None = None

    def count(self) -> bool:
        """Count the time for which it waited once that is known, and return True."""
        if self.waits_from is None or self.until is None:
            return False
        if self.late is not None:
            waited = max(0, self.until - self.waits_from)
            self.late.total += waited
            self.late.waits.append(waited)
        return True


class Lateness:
    """Times that ranks waited for others, by source line and late rank."""

    def __init__(self) -> None:
        self._arrivals: dict[Entry, Arrival] = {}
        self._late: dict[tuple[SourceLine, str, int], Late] = {}
        self._calls: Counter[tuple[SourceLine, str]] = Counter()

    def add(self, at: int, note: Note, entry: Entry | None) -> None:
        """Add a note.

        Args:
            at: Time in µs since 1970, or 0 if unknown, which counts nothing.
            note: Note of a rank.
            entry: Call that it is about, or None.
        """
        if not at or entry is None or entry.call.rules.internal or entry.call.op == "new_group":
            return
        pair = {side.rank: side for side in (entry, entry.other) if side is not None}
        calls: Mapping[int, Entry] = pair if entry.calls_there is None else entry.calls_there
        size = 2 if entry.calls_there is None else len(entry.group.members)
        if isinstance(note, CallNote):
            self._arrivals[entry] = Arrival(at, at if entry.call.sync else None)
            if len(self._arrivals) > MAX_PENDING * size:
                del self._arrivals[next(iter(self._arrivals))]
            if len(calls) == size:
                self._complete(calls)
        elif isinstance(note, WaitNote) and entry in self._arrivals:
            self._arrivals[entry].waits_from = at
            self._count(entry)
        elif isinstance(note, ReturnNote) and note.undone:
            self._arrivals.pop(entry, None)
        elif isinstance(note, ReturnNote) and note.source >= 0 and len(pair) == size:
            self._complete(pair)

    def _complete(self, calls: Mapping[int, Entry]) -> None:
        """Find the late rank of a call that all of these ranks have made."""
        arrivals = {rank: self._arrivals.get(entry) for rank, entry in calls.items()}
        known = {rank: arrival for rank, arrival in arrivals.items() if arrival is not None}
        if len(known) < len(calls):
            return
        last = max(known, key=lambda rank: known[rank].at)
        for rank, entry in calls.items():  # only one rank sends
            if entry.sends or entry.call.root == entry.group.numbers[rank]:
                last = rank if entry.call.rules.data != "to root" else last
        entry = calls[last]
        line = entry.call.source_line, entry.call.op
        late: Late | None = None
        if len(self._calls) < MAX_LINES or line in self._calls:
            self._calls[line] += 1
            late = self._late.setdefault((*line, last), Late())
        numbers = entry.group.numbers
        until = known[last].at
        waited = False
        for rank, arrival in known.items():
            needs = calls[rank].call.receives_from(numbers[rank], numbers[last])
            arrival.until = until
            if rank != last and needs and arrival.at < until:
                arrival.late = late
                waited = True
            self._count(calls[rank])
        if late is not None:
            late.last += waited

    def _count(self, entry: Entry) -> None:
        if self._arrivals[entry].count():
            del self._arrivals[entry]

    def ranking(self, text: Callable[[SourceLine], str]) -> tuple[LateRank, ...]:
        """Return the late ranks, those that were waited for longest first.

        Args:
            text: Function that returns a source line as text.
        """
        late_ranks = [
            LateRank(
                op,
                text(line),
                rank,
                late.last,
                self._calls[line, op],
                median(late.waits) / 1e6,
                late.total / 1e6,
            )
            for (line, op, rank), late in self._late.items()
            if late.waits
        ]
        return tuple(sorted(late_ranks, key=lambda late: -late.total_s))
