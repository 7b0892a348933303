r"""The notes of a rank: lines of text that it writes before each call, into a pipe or a file.

A call that was made before from the same line with the same arguments is its number alone::

    G 0 0 [0, 1, 2, 3]                     # group 0 is the 0th with these members
    C 5 0 {"op": "all_reduce", ...}        # call 5, on group 0, looks like this
    5                                      # the rank makes call 5
    w 5                                    # it begins to wait for what it made as its 5th call ...
    r                                      # ... and has come back from that (r 2: with data of 2)
    E {"how": "returned"}                  # its program has ended

Lines are ASCII, ended by ``\n``. A line of another thread than the main one begins with ``@n``.
Nothing here is unpickled, so notes may come from anywhere.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, field, replace
from fcntl import F_GETPIPE_SZ, fcntl
from typing import Any

from distdemo.sanitizer.records import Call, Place

MOST_KNOWN = 20_000  # different calls that a rank describes in short; then it begins anew


class Writer:
    """The rank's end. Writing waits while the pipe is full, which the launcher empties.

    Args:
        fd: to write to, from any thread.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._main = threading.main_thread().ident
        self._threads: dict[int, int] = {}

    def write(self, line: str) -> None:
        """Write one line, whole."""
        thread = threading.get_ident()
        if thread != self._main:
            number = self._threads.setdefault(thread, 1 + len(self._threads))
            line = f"@{number} {line}"
        data = f"{line}\n".encode("ascii")
        fcntl(self._fd, F_GETPIPE_SZ)  # raises, should the program have closed what it found open
        while data:
            data = data[os.write(self._fd, data) :]


def end_line(ended: Ended) -> str:
    """How a rank says that its program has ended."""
    return f"E {json.dumps(asdict(ended))}"


def call_line(number: int, group: int, call: Call) -> str:
    """How a rank describes a call the first time."""
    fields = {name: value for name, value in asdict(call).items() if value not in ("", (), None)}
    return f"C {number} {group} {json.dumps(fields, separators=(',', ':'))}"


@dataclass(frozen=True, slots=True)
class Made:
    """A rank makes a call.

    Attributes:
        group: its members, and how many groups of the same came before it.
        agreement: of the call.
    """

    group: tuple[tuple[int, ...], int]
    call: Call
    agreement: tuple[object, ...]
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Waits:
    """A rank begins to wait for its n-th call; it counts from 0."""

    number: int
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Came:
    """A rank has come back from the call, or the wait, that it was in.

    Attributes:
        source: of a receive from any rank: whose data it got; −1: unknown.
    """

    thread: int = 0
    source: int = -1


@dataclass(frozen=True, slots=True)
class Ended:
    """The rank's program has ended.

    Attributes:
        how: ``returned``, ``raised ValueError: ...``.
        place: where it raised.
        inside: the function of torch.distributed that raised; empty: none did.
    """

    how: str
    place: Place = field(default_factory=Place)
    inside: str = ""


Note = Made | Waits | Came | Ended


@dataclass(slots=True)
class Reader:
    """The other end: pieces of text in, notes out. What can't be read is left out."""

    _rest: bytes = b""
    _groups: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    _made: dict[int, Made] = field(default_factory=dict)

    def read(self, piece: bytes) -> list[Note]:
        """Every note that is whole by now."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found = []
        for line in lines:
            try:
                note = self._note(line.decode("ascii"))
            except (ValueError, KeyError, TypeError, IndexError):
                continue
            if note is not None:
                found.append(note)
        return found

    def _note(self, line: str) -> Note | None:
        thread = 0
        if line.startswith("@"):
            number, _, line = line[1:].partition(" ")
            thread = int(number)
        if line[:1].isdigit():
            made = self._made[int(line)]
            return replace(made, thread=thread) if thread else made
        letter, _, rest = line.partition(" ")
        if letter == "r":
            return Came(thread, int(rest or -1))
        if letter == "w":
            return Waits(int(rest), thread)
        if letter == "E":
            fields = json.loads(rest)
            return Ended(fields["how"], Place(**fields["place"]), fields["inside"])
        if letter == "G":
            name, nth, members = rest.split(" ", 2)
            self._groups[int(name)] = (tuple(map(int, json.loads(members))), int(nth))
        elif letter == "C":
            name, group, fields = rest.split(" ", 2)
            call = _call(json.loads(fields))
            self._made[int(name)] = Made(self._groups[int(group)], call, call.agreement)
        return None


def _call(fields: dict[str, Any]) -> Call:
    place = Place(**fields.pop("place", {}))
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Call(place=place, **(fields | lists))
