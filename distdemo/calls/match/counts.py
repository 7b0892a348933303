"""Count the calls of all ranks, by definition."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from distdemo.calls.match.matcher import Matcher
from distdemo.calls.notes import MAX_KNOWN, CallNote
from distdemo.calls.records import CallCount

OTHERS = -1  # serial number of all calls beyond the limit together


class CallCounter:
    """Numbers of the program's own calls, by the serial number of their definition and by rank."""

    def __init__(self) -> None:
        self._notes: dict[int, CallNote] = {}
        self._counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._left_out: dict[int, Counter[int]] = {}

    def add(self, rank: int, note: CallNote, times: int = 1) -> bool:
        """Count a call unless it is internal; return True if its definition may be new."""
        if note.call.rules.internal:
            return True
        serial = note.serial
        is_new = serial not in self._notes
        if is_new and len(self._notes) < MAX_KNOWN:
            self._notes[serial] = note
        self._counts[serial if serial in self._notes else OTHERS][rank] += times
        return is_new

    def total(self, rank: int) -> int:
        """Return the number of calls of a rank."""
        return sum(counts[rank] for counts in self._counts.values())

    def leave_out(self) -> None:
        """Have `calls` leave out the calls so far."""
        self._left_out = {serial: counts.copy() for serial, counts in self._counts.items()}

    def calls(self, matcher: Matcher) -> tuple[CallCount, ...]:
        """Return the calls in the order in which they first occurred, with their counts."""
        together: dict[tuple[str, str, str], tuple[CallCount, Counter[int]]] = {}
        for serial, counts in self._counts.items():
            row = CallCount("other calls", "", None, (), 0)
            if note := self._notes.get(serial):
                group = matcher.group(note.group)
                line = matcher.shown.line(note.call.source_line)
                row = CallCount(str(note.call), group.name, line, (), 0, group.label)
            _, total = together.setdefault(
                (row.did, row.group, str(row.source_line)), (row, Counter())
            )
            total.update(counts - self._left_out.get(serial, Counter()))
        return tuple(
            replace(row, ranks=tuple(sorted(r for r in total if total[r] == count)), count=count)
            for row, total in together.values()
            for count in sorted(set(total.values()), reverse=True)
        )
