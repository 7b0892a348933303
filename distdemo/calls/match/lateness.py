"""Find the ranks that other ranks wait for, from the times in the notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import median

from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.state import Entry, Late, Timing
from distdemo.calls.notes import CallNote, Note, OrderNote, ReturnNote, WaitNote
from distdemo.calls.records import LateRank, SourceLine


class Lateness:
    """Times that ranks waited for others, by source line, op and late rank."""

    def __init__(self) -> None:
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
        if isinstance(note, CallNote):
            entry.timing = Timing(at, at if entry.call.sync else 0)
            self._complete(entry)
        elif isinstance(note, WaitNote) and entry.timing is not None:
            timing = entry.timing
            timing.waits_us = at
            if timing.late is not None:
                timing.late.count(at, timing.ended_us)
        elif isinstance(note, OrderNote) or (isinstance(note, ReturnNote) and note.source >= 0):
            self._complete(entry)

    def _complete(self, entry: Entry) -> None:
        """Find the late rank of a call, if all ranks have made it."""
        calls = entry.together
        times = {other: other.timing for other in calls if other.timing is not None}
        if not calls or len(times) < len(calls):
            return
        last = max(calls, key=lambda other: times[other].made_us)
        for other in calls:  # only one rank sends
            is_root = other.call.root == entry.group.numbers[other.rank]
            if other.sends or (is_root and other.call.rules.data == "from root"):
                last = other
        line = last.call.source_line, last.call.op
        if line not in self._calls and len(self._calls) >= MAX_LINES:
            return
        self._calls[line] += 1
        late = self._late.setdefault((*line, last.rank), Late())
        numbers = entry.group.numbers
        made_us = times[last].made_us
        waiting = [
            times[other]
            for other in calls
            if times[other].made_us < made_us
            and other.call.receives_from(numbers[other.rank], numbers[last.rank])
        ]
        late.last += bool(waiting)
        for timing in waiting:
            timing.late = late
            timing.ended_us = made_us
            if timing.waits_us:
                late.count(timing.waits_us, made_us)

    def ranking(self, shown: Callable[[SourceLine], SourceLine]) -> tuple[LateRank, ...]:
        """Return the late ranks, those that were waited for longest first.

        Args:
            shown: Function that returns a source line as it is shown.
        """
        late_ranks = [
            LateRank(
                op,
                shown(line),
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
