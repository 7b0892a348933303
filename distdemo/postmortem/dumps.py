"""Read dumps of torch's flight recorder: pickles and JSON, versions 2.0 and later.

A dump may come from anyone; see ``calls.flight.entries``.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from distdemo.calls.flight.entries import MAX_TEXT, CallState, EntryReader, text_of, typed
from distdemo.calls.flight.pickles import load_plain
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES
from distdemo.postmortem.records import GroupId, PastCall, RankCalls

MAX_CALLS = 100_000  # per dump; torch keeps 2,000 unless told otherwise
MAX_MEMBERS = 2_000_000  # of all groups together
_DIGITS = re.compile(r"\d{1,5}")


def read_dump(data: bytes | str) -> RankCalls:
    """Return the calls in a dump: a pickle, or JSON as text.

    Raises:
        UnpicklingError: It is a pickle of something else, or truncated.
        ValueError: It isn't a dump.
    """
    try:
        plain = load_plain(data) if isinstance(data, bytes) else loads(data, max_bytes=MAX_BYTES)
        return _Reader(plain).dump
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"not a flight recorder's dump ({type(error).__name__}: {error})"
        raise ValueError(why[:MAX_TEXT]) from None


class _Reader:
    """Reader of the calls in plain data. Equal calls share one object.

    Every value is checked before it is used.
    """

    def __init__(self, data: Any) -> None:
        version = text_of(typed(data, dict)["version"])
        if not version.startswith("2."):
            raise ValueError(f"version {version!r} instead of 2")
        library = text_of(data.get("comm_lib_version") or data.get("nccl_version") or "")
        self.dump = RankCalls(library=library, is_dump=True)
        self._members: dict[str, tuple[int, ...]] = {}
        self._groups: dict[tuple[str, str], GroupId] = {}  # by name and description
        self._latest: dict[tuple[str, str], int] = {}  # number of the last call of a group
        self._entries = EntryReader()
        self._ranks: dict[str, tuple[int, ...]] = {}  # by the text that lists them
        members = 0
        for group in typed(data.get("pg_config") or {}, dict).values():
            name = text_of(typed(group, dict)["name"])
            self._members[name] = self._ranks_in(typed(group["ranks"], str))
            members += len(self._members[name])
            if members > MAX_MEMBERS:
                raise ValueError(f"its groups have more than {MAX_MEMBERS:,} members")
            if name and self._members[name]:
                self.dump.groups.append(GroupId(name, text_of(group["desc"]), self._members[name]))
        is_only = len(typed(data.get("pg_status") or {}, dict)) == 1
        self._unnamed = self._members.get("", ()) if is_only else ()  # gloo leaves out the names
        if "pg_status" in data:
            data.setdefault("entries", [])  # JSON without calls leaves them out
        entries = typed(data["entries"], list)
        if len(entries) > MAX_CALLS:
            raise ValueError(f"it has more than {MAX_CALLS:,} calls")
        for entry in entries:
            self._add(entry)

    def _add(self, value: Any) -> None:
        """Add a call to the dump. Of a coalesced call, the first part counts."""
        dump = self.dump
        entry = self._entries.read(value)
        dump.backend = dump.backend or entry.backend
        call = entry.call
        key = entry.group
        if key not in self._groups:
            members = self._members.get(key[0], self._unnamed)
            self._groups[key] = GroupId(*key, members)
        group = self._groups[key]
        if entry.is_message:
            if call.peer is not None and entry.state != CallState.COMPLETED:
                dump.calls.append(PastCall(group, 0, call, CallState.STARTED))
        elif entry.place > self._latest.get(key, 0):
            self._latest[key] = entry.place
            dump.calls.append(PastCall(group, entry.place, call, entry.state))
            dump.times = dump.times[0] or entry.created, entry.created

    def _ranks_in(self, text: str) -> tuple[int, ...]:
        """Return the ranks in a text. Several groups may have the same."""
        if text not in self._ranks:
            digits = islice(_DIGITS.finditer(text), MAX_MEMBERS + 1)
            self._ranks[text] = tuple(int(found[0]) for found in digits)
        return self._ranks[text]
