r"""The notes of a rank: lines of text that it writes before each call, into memory or a file.

A call that was made before from the same line with the same arguments is its number alone::

    H {"rank": 2, ...}                     # a file begins with whose notes it has
    G 0 0 gloo [0, 1, 2, 3]                # group 0 is the 0th with this backend and these members
    C 5 0 {"op": "all_reduce", ...}        # call 5, on group 0, looks like this
    5                                      # the rank makes call 5
    w 5                                    # it begins to wait for what it made as its 5th call ...
    r                                      # ... and has come back from that (r 2: with data of 2)
    f                                      # that failed; u: and so the call was not made
    X "why"                                # no more notes come, though the program goes on
    B {"what": "written", ...}             # what is wrong with the memory of a call
    D {"groups": [0], ...}                 # the rank destroys these groups
    E {"how": "returned"}                  # its program has ended

Lines are ASCII, ended by ``\n``. A line of another thread than the main one begins with ``@n``,
and one that carries its time with ``t`` and that time, in µs since 1970, before all else.
Notes may come from anywhere: a reader checks types, numbers and the length of a line.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from distdemo.encoding import decode, loads
from distdemo.sanitizer.records import Call, Place

T = TypeVar("T")
GroupKey = tuple[tuple[int, ...], str, int]
"""A group's members, its backend, and how many of the same there were before it."""
HEAD = 16  # bytes of a ring before its data
FULL_S = 0.001  # seconds between two looks at a ring that is full
MOST_KNOWN = 20_000  # different calls that a rank describes in short; then it begins anew
LONGEST_LINE = 1 << 20  # bytes
MOST_THREADS = MOST_GROUPS = 1 << 16  # of one rank
MOST_MEMBERS = 1 << 20  # of all groups of one rank together
MOST = 1 << 63  # of every other number
UNREADABLE = "its notes can't be read"


class Ring:
    """Memory that a rank writes its notes into and the launcher reads them from.

    It outlives the rank, and a program that closes every descriptor that it finds. The first 16
    bytes count what was written and what was read, ever; the rest goes round.

    Args:
        memory: shared by both.
    """

    def __init__(self, memory: memoryview) -> None:
        self._counts = memory[:HEAD].cast("Q")
        self._data = memory[HEAD:]
        self._size = len(self._data)
        self._written = self._counts[0]

    def write(self, data: bytes) -> None:
        """Add this, waiting while there is no room: the launcher reads now and then.

        Raises:
            ValueError: there never is that much room.
        """
        length = len(data)
        if length > self._size:
            raise ValueError(f"a note of {length:,} bytes, and there is room for {self._size:,}")
        while self._written + length - self._counts[1] > self._size:
            time.sleep(FULL_S)
        start = self._written  # a signal's handler may have noted something meanwhile
        self._written = end = start + length
        at = start % self._size
        room = self._size - at
        if length <= room:
            self._data[at : at + length] = data
        else:
            self._data[at:] = data[:room]
            self._data[: length - room] = data[room:]
        self._counts[0] = end

    def read(self) -> bytes:
        """What was added since."""
        end, start = self._counts[0], self._counts[1]
        if end == start:
            return b""
        first, last = start % self._size, (end - 1) % self._size + 1
        if first < last:
            found = bytes(self._data[first:last])
        else:
            found = bytes(self._data[first:]) + bytes(self._data[:last])
        self._counts[1] = end
        return found


def shared(path: str, size: int, nth: int = 0) -> memoryview:
    """The n-th part of this size of a file, in memory that all who ask for it share."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, size, offset=nth * size))
    finally:
        os.close(fd)


class Writer:
    """The rank's end: lines of text, each with the thread that it is of.

    Args:
        write: takes the bytes of a line.
        timed: begin each line with the time.
    """

    def __init__(self, write: Callable[[bytes], object], *, timed: bool = False) -> None:
        self._put = write
        self._timed = timed
        self._main = threading.main_thread().ident
        self._threads: dict[int, int] = {}

    def write(self, line: str) -> None:
        """Write one line, whole."""
        thread = threading.get_ident()
        if thread != self._main:
            number = self._threads.setdefault(thread, 1 + len(self._threads))
            line = f"@{number} {line}"
        if self._timed:
            line = f"t{time.time_ns() // 1000} {line}"
        self._put(f"{line}\n".encode("ascii"))


def touched_line(touched: Touched) -> str:
    """How a rank says what is wrong with the memory of a call."""
    return f"B {json.dumps(asdict(touched))}"


def stop_line(why: str) -> str:
    """How a rank says that it notes no more."""
    return f"X {json.dumps(why)}"


def left_line(groups: list[int], place: Place, failing: str) -> str:
    """How a rank says that it destroys these groups."""
    fields = {"groups": groups, "place": asdict(place), "failing": failing}
    return f"D {json.dumps(fields)}"


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
        agreement: of the call.
    """

    group: GroupKey
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
        failed: it raised.
        undone: it raised before anybody else could hear of the call.
    """

    thread: int = 0
    source: int = -1
    failed: bool = False
    undone: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The rank notes nothing from here on, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Touched:
    """What is wrong with the memory of a call.

    Attributes:
        did: the call, as people read it.
        place: where it was made.
        then: where its tensors were touched, or nowhere.
        what: ``strided``, ``written``, ``read`` or ``unwaited``.
    """

    did: str
    place: Place
    then: Place = field(default_factory=Place)
    what: str = "strided"


@dataclass(frozen=True, slots=True)
class Left:
    """The rank destroys its side of these groups, and makes no more calls on them.

    Attributes:
        failing: an error that is on its way, by which its program may end; empty: there is none.
    """

    groups: tuple[GroupKey, ...]
    place: Place
    failing: str = ""


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


Note = Made | Waits | Came | Stopped | Touched | Left | Ended


@dataclass(slots=True)
class Reader:
    """The other end: pieces of text in, notes out."""

    _rest: bytes = b""
    _broken: bool = False
    _groups: dict[int, GroupKey] = field(default_factory=dict)
    _members: int = 0
    _made: dict[int, Made] = field(default_factory=dict)

    def read(self, piece: bytes) -> list[tuple[int, Note]]:
        """Return every complete note, with its time in µs since 1970 or 0.

        A line that can't be read is a `Stopped`, the last note of all.
        """
        if self._broken:
            return []
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found: list[tuple[int, Note]] = []
        if len(self._rest) > LONGEST_LINE:
            lines.append(b"?")
        for line in lines:
            at, note = 0, None
            try:
                text = line.decode("ascii")
                if text.startswith("t"):
                    moment, _, text = text[1:].partition(" ")
                    at = _number(moment, MOST)
                note = self._note(text)
            except (ValueError, LookupError, TypeError):
                self._broken = True
                return [*found, (0, Stopped(UNREADABLE))]
            if note is not None:
                found.append((at, note))
        return found

    def _note(self, line: str) -> Note | None:
        thread = 0
        if line.startswith("@"):
            number, _, line = line[1:].partition(" ")
            thread = _number(number, MOST_THREADS)
        if line[:1].isdigit():
            made = self._made[int(line)]
            return replace(made, thread=thread) if thread else made
        letter, _, rest = line.partition(" ")
        if letter == "r":
            return Came(thread, _number(rest, MOST) if rest else -1)
        if letter in ("f", "u"):
            return Came(thread, failed=True, undone=letter == "u")
        if letter == "X":
            return Stopped(_json(str, rest))
        if letter == "w":
            return Waits(_number(rest, MOST), thread)
        if letter == "B":
            return _json(Touched, rest)
        if letter == "D":
            left = _json(_Left, rest)
            return Left(tuple(self._groups[each] for each in left.groups), left.place, left.failing)
        if letter == "E":
            return _json(Ended, rest)
        if letter == "G":
            name, nth, backend, members = rest.split(" ", 3)
            key = self._group_key(members, backend, _number(nth, MOST))
            self._groups[_number(name, MOST_GROUPS)] = key
        elif letter == "C":
            name, group, fields = rest.split(" ", 2)
            call = _json(Call, fields)
            made = Made(self._groups[int(group)], call, call.agreement)
            self._made[_number(name, MOST_KNOWN)] = made
        elif letter != "H":  # who wrote this, for who opens the file
            raise ValueError("there is no such note")
        return None

    def _group_key(self, text: str, backend: str, nth: int) -> GroupKey:
        members = _json(tuple[int, ...], text)
        self._members += len(members)
        if self._members > MOST_MEMBERS:
            raise ValueError("its groups have too many members")
        return members, backend, nth


@dataclass(frozen=True, slots=True)
class _Left:
    """`Left` as it is written: groups by number."""

    groups: tuple[int, ...]
    place: Place
    failing: str


def _json(kind: type[T], text: str) -> T:
    return decode(kind, loads(text, max_bytes=LONGEST_LINE))


def _number(text: str, end: int) -> int:
    number = int(text)
    if not 0 <= number < end:
        raise ValueError(f"{text} is not in the range of {end}")
    return number
