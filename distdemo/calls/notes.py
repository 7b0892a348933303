r"""The notes of a rank: lines of text that it writes to memory or a file before each call.

A repeated call (same line, same arguments) is written as its number only::

    H {"rank": 2, ...}                     # header of a file
    G 0 0 gloo [0, 1, 2, 3]                # group 0: the 0th with this backend and these members
    C 5 0 {"op": "all_reduce", ...}        # definition of call 5, on group 0
    5                                      # the rank makes call 5
    5 12                                   # likewise, for the gradients of step 12
    w 5                                    # it waits for the 5th call that it made
    n 5                                    # it needn't wait for it any more; see HandleNote
    d 5                                    # it has dropped the handle without either
    a                                      # torch accepted the call, and other ranks may notice it
    a +                                    # likewise, with threads that have made no call yet
    r                                      # the call or wait returned (r 2: with data of rank 2)
    f                                      # it raised; u: before torch accepted the call
    x                                      # this thread has ended (x +: and others haven't called)
    X "why"                                # recording stopped, but the program continues
    B {"what": "written", ...}             # misuse of a call's memory
    R 0 {"names": [...], ...}              # checksums of parameters, on group 0; see Parameters
    V 0 {"names": [...], ...}              # checksum of gradients, on group 0; see Gradients
    D 0 {"source_line": ..., ...}          # the rank destroys group 0
    U {"what": "calls", ...}               # something that it couldn't look at
    E {"how": "returned"}                  # its program has ended

Lines are ASCII and end with ``\n``. A line of a thread other than the main thread begins with
``@n``. A line with a time begins with ``t`` and the time in µs since 1970, before everything else.
Notes are untrusted input: a reader checks types, numbers and the length of a line.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from distdemo.calls.match.rules import agreement, backend_named
from distdemo.calls.records import Misuse, RankCall, SourceLine, Unseen
from distdemo.encoding import decode, encode, loads

T = TypeVar("T")
GroupKey = tuple[tuple[int, ...], str, int]
"""Members and backend of a group, and the number of earlier groups with the same."""
HEAD = 16  # bytes before the data of a ring
FULL_S = 0.001  # seconds between checks of a full ring
MAX_KNOWN = 20_000  # call definitions that a rank keeps before it starts again
MAX_LINE_BYTES = 1 << 20
MAX_THREADS = MAX_GROUPS = 1 << 16  # per rank
MAX_MEMBERS = 1 << 20  # of all groups of one rank in total
MAX_NUMBER = 1 << 63  # limit of every other number
UNREADABLE = "its notes can't be read"
Moment = Literal["check", "first", "after", "next", "unmarked", "end"]
"""Moment at which parameters are compared; see `Parameters`."""


class Ring:
    """Ring buffer that a rank writes its notes to and the launcher reads.

    It outlives the rank, and keeps working if the program closes all its descriptors. The first 16
    bytes are the total numbers of bytes written and read; the rest is the ring.

    Args:
        memory: Memory shared by both processes.
    """

    def __init__(self, memory: memoryview) -> None:
        self._counts = memory[:HEAD].cast("Q")
        self._data = memory[HEAD:]
        self._size = len(self._data)
        self._written = self._counts[0]

    def write(self, data: bytes) -> None:
        """Append data; wait while the ring is full. Two writes must not overlap.

        Raises:
            ValueError: The data is larger than the ring.
        """
        length = len(data)
        start = self._written
        end = start + length
        while end - self._counts[1] > self._size:
            if length > self._size:
                raise ValueError(f"a note of {length:,} bytes in a ring of {self._size:,}")
            time.sleep(FULL_S)
        at = start % self._size
        room = self._size - at
        if length <= room:
            self._data[at : at + length] = data
        else:
            self._data[at:] = data[:room]
            self._data[: length - room] = data[room:]
        self._counts[0] = self._written = end

    def read(self) -> bytes:
        """Return the data written since the last call."""
        end, start = self._counts
        if end == start:
            return b""
        first, last = start % self._size, (end - 1) % self._size + 1
        if first < last:
            data = bytes(self._data[first:last])
        else:
            data = bytes(self._data[first:]) + bytes(self._data[:last])
        self._counts[1] = end
        return data


def shared(path: str, size: int, nth: int = 0) -> memoryview:
    """Map the n-th part of this size of a file as shared memory."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, size, offset=nth * size))
    finally:
        os.close(fd)


class Writer:
    """Writes lines of notes, each with its thread. Its user has a lock.

    Args:
        write: Function that writes the bytes of a line.
        timed: True to begin each line with the time.

    Attributes:
        copies: Buffers that get every line, too.
        calls: Number of lines that were calls.
    """

    def __init__(self, write: Callable[[bytes], object], *, timed: bool = False) -> None:
        self.copies: list[bytearray] = []
        self.calls = 0
        self._write = write
        self._timed = timed
        self._main = threading.main_thread().ident
        self._threads = {self._main: 0}
        self._free: list[int] = []

    @property
    def threads(self) -> Collection[int | None]:
        """Identifiers of the threads that have written a line, and of the main thread."""
        return self._threads.keys()

    def forget_thread(self) -> None:
        """Forget the current thread, which has ended; another one may get its number."""
        self._free.append(self._threads.pop(threading.get_ident()))

    def write(self, line: str, *, is_call: bool = False) -> int:
        """Write one complete line, and return the number of calls before it."""
        thread = threading.get_ident()
        if thread != self._main:
            if thread not in self._threads:
                self._threads[thread] = self._free.pop() if self._free else len(self._threads)
            line = f"@{self._threads[thread]} {line}"
        if self._timed:
            line = f"t{time.time_ns() // 1000} {line}"
        data = f"{line}\n".encode("ascii")
        number = self.calls
        self.calls = number + is_call
        self._write(data)
        for copy in self.copies:
            copy.extend(data)
        return number


def json_line(start: str, record: object) -> str:
    """Return a line that begins with a letter and numbers and ends with a record."""
    fields = encode(record, decodable=True)
    return f"{start} {json.dumps(fields, separators=(',', ':'))}"


def call_line(number: int, group: int, call: RankCall) -> str:
    """Return the line that defines a call."""
    return json_line(f"C {number} {group}", call)


@dataclass(frozen=True, slots=True)
class CallNote:
    """A rank makes a call.

    Attributes:
        group: Group of the call.
        call: Properties of the call.
        agreement: Values that must be equal on all ranks.
        thread: Thread that makes the call; 0 is the main thread.
        step: Number of steps before, if DDP or FSDP reduces gradients; otherwise -1.
    """

    group: GroupKey
    call: RankCall
    agreement: tuple[object, ...]
    thread: int = 0
    step: int = -1


@dataclass(frozen=True, slots=True)
class AcceptNote:
    """Torch has checked the arguments of a thread's latest call and started it.

    Attributes:
        thread: Thread of the call; 0 is the main thread.
        others: True if the rank has threads that have made no call yet.
    """

    thread: int = 0
    others: bool = False


@dataclass(frozen=True, slots=True)
class WaitNote:
    """A rank starts to wait for its n-th call, counting from 0; see `AcceptNote`."""

    number: int
    thread: int = 0
    others: bool = False


@dataclass(frozen=True, slots=True)
class HandleNote:
    """The rank needn't wait for a call any more.

    Attributes:
        number: Number of the call on this rank.
        dropped: True if it has dropped the handle of a send or receive; False if it has polled the
            call until it was done, or has taken its future.
    """

    number: int
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class ReturnNote:
    """The call or wait that a rank was in has returned.

    Attributes:
        thread: Thread of the call; 0 is the main thread.
        source: Sender of the data for a receive from any rank, or −1 if unknown.
        failed: True if it raised.
        undone: True if it raised before any other rank could notice the call.
    """

    thread: int = 0
    source: int = -1
    failed: bool = False
    undone: bool = False


@dataclass(frozen=True, slots=True)
class ThreadEndNote:
    """A thread of the rank has ended; see `AcceptNote`."""

    thread: int = 0
    others: bool = False


@dataclass(frozen=True, slots=True)
class StopNote:
    """The rank has stopped recording, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class MisuseNote:
    """Misuse of a call's memory or result.

    Attributes:
        did: Call as text.
        source_line: Source line of the call.
        then: Source line of the access to its tensors, if any.
        what: The misuse.
    """

    did: str
    source_line: SourceLine
    then: SourceLine = field(default_factory=SourceLine)
    what: Misuse = "unwaited"


@dataclass(frozen=True, slots=True)
class UnseenNote:
    """Something of the program that the rank couldn't look at, noted once.

    Attributes:
        what: Kind, as in `Gap`.
        names: Classes of the groups, names of the tensors, or the error.
        source_line: Source line where it was met first.
        count: Number of calls or tensors; a later note of the same replaces it.
    """

    what: Unseen
    names: tuple[str, ...]
    source_line: SourceLine
    count: int = 1


@dataclass(frozen=True, slots=True)
class Parameters:
    """Checksums of an optimizer's parameters that must be equal on all ranks of a group.

    Attributes:
        moment: When they were computed: in a ``check`` that the program makes itself; before the
            ``first`` step; ``after`` a step, when the program may still average; before the
            ``next`` step. ``unmarked`` likewise, for parameters that nothing marks as replicas;
            ``end`` has only the names of these, at the end of the program.
        names: Names of the parameters.
        sums: Checksum of each.
        source_line: Source line of the latest step or of the check.
        optimizer: Number of the optimizer on this rank, from 1; 0 for a check.
        step: Number of its steps so far; 0 before the first. The number of a check, from 1.
        reduced: True if the gradients of the latest step were reduced on the group. Before the
            first: if DDP, DTensor or the program reduces them there, and doesn't only broadcast
            or average the parameters.
        gradients: Checksum of each gradient before the latest step; empty if not computed.
        unreduced: Number of steps so far without a reduction of gradients on the group.
        why: Reason for steps without a reduction: DDP was ``not called``, ``no_sync``, or
            ``unused NAME``; empty if unknown.
        averaged: True if the program has averaged the parameters after its last step.
        joined: True if a step was made within DDP's ``join()``, so that ranks may make different
            numbers of steps.
    """

    moment: Moment
    names: tuple[str, ...]
    sums: tuple[int, ...]
    source_line: SourceLine
    optimizer: int = 0
    step: int = 0
    reduced: bool = False
    gradients: tuple[int, ...] = ()
    unreduced: int = 0
    why: str = ""
    averaged: bool = False
    joined: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` unless each name has a checksum, and a gradient if there are any."""
        count = 0 if self.moment == "end" else len(self.names)
        if len(self.sums) != count or len(self.gradients) not in (0, count):
            raise ValueError("the numbers of names and checksums differ")


@dataclass(frozen=True, slots=True)
class Gradients:
    """Checksum of the gradients that a rank gives to the reductions of one step on a group.

    Attributes:
        step: Number of the step, from 1, among those with a reduction on the group.
        names: Parameters whose gradients the program reduces, in the order of its calls; the first
            50. Empty for those that DDP or FSDP reduces.
        total: Checksum of all gradients; 0 if they are zero.
        source_line: Source line of the step.
        owner: Checksum of the names of all parameters of the optimizer.
    """

    step: int
    names: tuple[str, ...]
    total: int
    source_line: SourceLine
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Destruction:
    """The rank destroys a group, and makes no more calls on it.

    Attributes:
        source_line: Source line.
        failing: Exception being raised, which may end the program, or empty.
        kept: True if the program has kept a reference to the group until its end, so that the
            group's connections are open.
    """

    source_line: SourceLine
    failing: str = ""
    kept: bool = False


GROUP_NOTES = {"R": Parameters, "V": Gradients, "D": Destruction}
"""Records about a group, by the first letter of their lines."""


@dataclass(frozen=True, slots=True)
class GroupNote:
    """A rank has computed checksums of what all ranks of a group share, or destroys the group."""

    group: GroupKey
    values: Parameters | Gradients | Destruction


@dataclass(frozen=True, slots=True)
class EndNote:
    """The rank's program has ended.

    Attributes:
        how: ``returned``, ``raised ValueError: ...``.
        source_line: Source line that raised.
        inside: Function of torch.distributed that raised, or empty.
        lost_peer: True if torch.distributed raised because another rank was gone.
    """

    how: str
    source_line: SourceLine = field(default_factory=SourceLine)
    inside: str = ""
    lost_peer: bool = False


Note = (
    CallNote
    | AcceptNote
    | WaitNote
    | HandleNote
    | ReturnNote
    | ThreadEndNote
    | StopNote
    | MisuseNote
    | UnseenNote
    | GroupNote
    | EndNote
)


@dataclass(slots=True)
class Reader:
    """Parses pieces of text into notes."""

    _rest: bytes = b""
    _broken: bool = False
    _groups: dict[int, GroupKey] = field(default_factory=dict)
    _member_count: int = 0
    _calls: dict[int, CallNote] = field(default_factory=dict)

    def read(self, piece: bytes) -> list[tuple[int, Note]]:
        """Return every complete note, with its time in µs since 1970 or 0.

        A line that can't be parsed becomes a `StopNote`, which is the last note.
        """
        if self._broken:
            return []
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines.append(b"?")
        notes: list[tuple[int, Note]] = []
        try:
            for line in lines:
                time_us, text = _prefix("t", line.decode("ascii"), MAX_NUMBER)
                thread, text = _prefix("@", text, MAX_THREADS)
                note = self._note(text, thread)
                if note is not None:
                    notes.append((time_us, note))
        except (ValueError, LookupError, TypeError):
            self._broken = True
            notes.append((0, StopNote(UNREADABLE)))
        return notes

    def _note(self, line: str, thread: int) -> Note | None:
        """Return the note of a line, or None for a definition."""
        start, _, rest = line.partition(" ")
        if start.isdigit():
            note = self._calls[int(start)]
            if rest:
                note = replace(note, step=_number(rest))
            return replace(note, thread=thread) if thread else note
        match start:
            case "a":
                return AcceptNote(thread, rest == "+")
            case "r":
                return ReturnNote(thread, _number(rest) if rest else -1)
            case "f" | "u":
                return ReturnNote(thread, failed=True, undone=start == "u")
            case "w":
                number, _, mark = rest.partition(" ")
                return WaitNote(_number(number), thread, mark == "+")
            case "n" | "d":
                return HandleNote(_number(rest), dropped=start == "d")
            case "x":
                return ThreadEndNote(thread, rest == "+")
            case "X":
                return StopNote(_json(str, rest))
            case "B":
                return _json(MisuseNote, rest)
            case "U":
                return _json(UnseenNote, rest)
            case "E":
                return _json(EndNote, rest)
            case "R" | "V" | "D":
                name, text = rest.split(" ", 1)
                return GroupNote(self._groups[int(name)], _json(GROUP_NOTES[start], text))
            case "G":
                name, nth, backend, text = rest.split(" ", 3)
                key = self._members(text), backend, _number(nth)
                self._groups[_number(name, MAX_GROUPS)] = key
            case "C":
                number, name, text = rest.split(" ", 2)
                key = self._groups[int(name)]
                call = replace(_json(RankCall, text), group=key[0])
                used = backend_named(key[1])
                if used is not None and used.copies_strided:
                    call = replace(call, strides=())
                self._calls[_number(number, MAX_KNOWN)] = CallNote(key, call, agreement(call))
            case "H":  # the header, which is read when the file is opened
                pass
            case _:
                raise ValueError("unknown note")
        return None

    def _members(self, text: str) -> tuple[int, ...]:
        members = _json(tuple[int, ...], text)
        self._member_count += len(members)
        if self._member_count > MAX_MEMBERS:
            raise ValueError("its groups have too many members")
        return members


def _prefix(mark: str, line: str, end: int) -> tuple[int, str]:
    """Return the number after a mark at the beginning of a line, or 0, and the rest."""
    if not line.startswith(mark):
        return 0, line
    number, _, rest = line[1:].partition(" ")
    return _number(number, end), rest


def _json(kind: type[T], text: str) -> T:
    return decode(kind, loads(text, max_bytes=MAX_LINE_BYTES))


def _number(text: str, end: int = MAX_NUMBER) -> int:
    number = int(text)
    if not 0 <= number < end:
        raise ValueError(f"{text} is not in [0, {end})")
    return number
