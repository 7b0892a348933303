"""Read the entries of this process's flight recorder that weren't read before, as fast as possible.

A dump has all entries. Torch writes them one after the other, as dictionaries whose first key is
their number, and each text once. So the older ones are skipped, except for the texts that they
define; an entry like an earlier one differs only in its numbers, which a pattern finds. Whatever
isn't as expected is left to ``load_plain``.
"""

from __future__ import annotations

import re
from pickle import UnpicklingError
from typing import Any

from distdemo.calls.flight.entries import EntryReader, FlightEntry, number
from distdemo.calls.flight.pickles import load_part, load_plain

COUNTER = "record_id"
"""First key of an entry, which counts those of a recorder."""
PLACE, CREATED = "collective_seq_id", "time_created_ns"
VARYING = (
    *(PLACE, "p2p_seq_id", "op_id", CREATED),
    *("duration_ms", "time_discovered_started_ns", "time_discovered_completed_ns"),
)
"""Keys whose numbers differ between calls that are alike."""
NUMBER = rb"(K.|M..|J....|\x8a[\x01-\x08].{8}|G.{8})"
WIDTHS = {b"K": 1, b"M": 2, b"J": 4, b"\x8a": 8}
MAX_KNOWN = 10_000  # entries that differ in more than numbers

Numbered = list[tuple[int, FlightEntry]]


class RecentEntries:
    """Reader of the dumps of one recorder, which remembers the entries that it has seen."""

    def __init__(self) -> None:
        self._memo: dict[int, str] = {}
        self._known: dict[bytes, FlightEntry] = {}
        self._pattern = re.compile(b"")

    def read(self, data: bytes, first: int) -> Numbered:
        """Return the entries with their numbers: all, or those from the first one on.

        Args:
            data: The dump.
            first: Number of the first entry that is needed, if the dump has it.
        """
        recent = self._read_last(data, first)
        if recent is not None:
            return recent
        reader = EntryReader()
        entries: list[dict[str, Any]] = load_plain(data).get("entries") or []
        return [(number(entry[COUNTER]), reader.read(entry)) for entry in entries]

    def _read_last(self, data: bytes, first: int) -> Numbered | None:
        """Return the entries from this one on; None if they can't be found this way."""
        defined = data.find(COUNTER.encode() + b"q") + len(COUNTER) + 1
        if defined <= len(COUNTER) or not 0 <= first < 1 << 31:
            return None
        code = b"K" if first < 1 << 8 else b"M" if first < 1 << 16 else b"J"
        mark = b"}(h" + data[defined : defined + 1]
        start = data.find(mark + code + first.to_bytes(WIDTHS[code], "little"), defined)
        end = data.rfind(b"ueu")  # of the last entry, the list and the whole
        if not 0 < start < end:
            return None
        self._define(data, end)
        found: Numbered = []
        for place, piece in enumerate(data[start + len(mark) : end + 1].split(mark), first):
            entry = self._entry(mark, piece, place)
            if entry is None:
                return None
            found.append((place, entry))
        return found

    def _define(self, data: bytes, end: int) -> None:
        """Find the texts that are defined up to this place, and their numbers."""
        memo: dict[int, str] = {}
        at = data.find(b"X")
        while 0 <= at < end:
            after = at + 5 + int.from_bytes(data[at + 1 : at + 5], "little")
            count = len(memo)
            name = b"q%c" % count if count < 1 << 8 else b"r" + count.to_bytes(4, "little")
            is_text = after < end and data.startswith(name, after)
            if is_text:
                memo[count] = data[at + 5 : after].decode("utf-8", "replace")
            at = data.find(b"X", after if is_text else at + 1)
        if memo != self._memo or len(self._known) > MAX_KNOWN:
            self._memo = memo
            self._known.clear()
            names = {text: b"\\x%02x" % key for key, text in memo.items() if key < 1 << 8}
            keys = b"".join(names[key] for key in VARYING if key in names)
            self._pattern = re.compile(b"h([" + keys + b"])" + NUMBER, re.DOTALL)

    def _entry(self, mark: bytes, piece: bytes, place: int) -> FlightEntry | None:
        """Return an entry; None if it isn't the one with this number."""
        width = WIDTHS.get(piece[:1], 0)
        if int.from_bytes(piece[1 : 1 + width], "little") != place:
            return None
        found = self._pattern.findall(piece, 1 + width)
        values = {self._memo[key[0]]: value for key, value in found}
        if len(values) != len(found) or not {PLACE, CREATED} <= values.keys():
            return None
        key = self._pattern.sub(b"", piece[1 + width :])
        known = self._known.get(key)
        if known is None:
            try:
                plain = load_part(mark + piece + b".", {**self._memo})
                known = self._known[key] = EntryReader().read(plain)
            except (ArithmeticError, LookupError, TypeError, UnpicklingError, ValueError):
                return None
        seq = 0 if known.is_message else _whole(values[PLACE])
        return known._replace(place=seq, created=_whole(values[CREATED]))


def _whole(code: bytes) -> int:
    """Return a number of torch's, which is written in 1, 2, 4 or 8 bytes after its code."""
    start = 2 if code[:1] == b"\x8a" else 1
    return int.from_bytes(code[start:], "little")
