r"""The notes of a rank: lines of text that it writes to memory or a file before each call.

A repeated call (same line, same arguments) is written as its number only::

    H {"rank": 2, ...}                     # header of a file
    G 0 0 gloo [0, 1, 2, 3]                # group 0: the 0th with this backend and these members
    G 1 0 nccl/cuda [0, 1, 2, 3]           # group 1: calls on this device, if they have several
    C 5 0 {"op": "all_reduce", ...}        # definition of call 5, on group 0
    5                                      # the rank makes call 5
    5 12                                   # likewise, for the gradients of step 12
    5 ~                                    # likewise; torch's recorder tells its order: o
    K 6 0 {"op": "all_reduce", ...}        # definition of a call that only this recorder has
    o 5                                    # next on its group comes the 5th call that it noted
    o                                      # the recorder was read to the end of the program
    l 5 {"file": ...}                      # line of the 5th call, which the recorder has
    O 0 {"calls": 12}                      # 12 calls were overwritten there; ends group 0
    w 5                                    # it waits for the 5th call that it made
    n 5                                    # it needn't wait for it any more; see HandleNote
    d 5                                    # it has dropped the handle without either
    a                                      # torch accepted the call, and other ranks may notice it
    a +                                    # likewise, with threads that have made no call yet
    r                                      # the call or wait returned (r 2: with data of rank 2)
    f                                      # it raised; u: before torch accepted the call
    x                                      # this thread has ended (x +: and others haven't called)
    X {"why": ...}                         # recording stopped, but the program continues
    B {"what": "written", ...}             # misuse of a call's memory
    P {"path": "0.weight", ...}            # description of a tensor that it trains; see TensorNote
    S {"moment": "step", ...}              # samples of such tensors; see Samples
    T {"optimizer": "SGD", ...}            # facts about the steps of an optimizer; see TrainingNote
    L {"seed": 0, ...}                     # a DistributedSampler; see SamplerNote
    R 0 {"names": [...], ...}              # a check of the program on group 0; see Check
    V 0 {"names": [...], ...}              # checksum of gradients, on group 0; see Gradients
    D 0 {"source_line": ..., ...}          # the rank destroys group 0
    U {"what": "calls", ...}               # something that it couldn't look at
    E {"how": "returned"}                  # its program has ended; see EndNote

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
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar

from distdemo.calls.match.rules import agreement, backend_named
from distdemo.calls.records import Misuse, PartialCall, RankCall, SourceLine, Unseen
from distdemo.encoding import decode, encode, loads

T = TypeVar("T")
HEAD = 24  # bytes before the data of a ring
FULL_S = 0.001  # seconds between checks of a full ring
MAX_KNOWN = 20_000  # call definitions that a rank keeps before it starts again
MAX_LINE_BYTES = 1 << 20
MAX_THREADS = MAX_GROUPS = 1 << 16  # per rank
RECORDER = MAX_THREADS - 1
"""Number of the thread of calls that torch's flight recorder has and that no hook has seen."""
MAX_MEMBERS = 1 << 20  # of all groups of one rank in total
MAX_NUMBER = 1 << 63  # limit of every other number
UNREADABLE = "its notes can't be read"


class GroupKey(NamedTuple):
    """Members, backend and number that tell a group apart.

    Attributes:
        members: Global ranks of the members.
        backend: Its backend, ``gloo``; ``rpc``, ``init`` or ``local`` for the creation of groups.
        nth: Number of earlier groups with the same members, backend and device.
        device: Device of its calls if devices have different backends, else empty.
    """

    members: tuple[int, ...]
    backend: str
    nth: int
    device: str = ""


class Ring:
    """Ring buffer that a rank writes its notes to and the launcher reads.

    It outlives the rank, and keeps working if the program closes all its descriptors. The first 24
    bytes are the total numbers of bytes written and read, and whether the rank is asked for the
    lines of its calls; the rest is the ring.

    Args:
        memory: Memory shared by both processes.
    """

    def __init__(self, memory: memoryview) -> None:
        self._counts = memory[:HEAD].cast("Q")
        self._data = memory[HEAD:]
        self._size = len(self._data)
        self._written = self._counts[0]

    def ask(self) -> None:
        """Ask the rank for the lines of calls that only torch's recorder has."""
        self._counts[2] = 1

    def take_request(self) -> bool:
        """Return True if the rank was asked for these lines since this returned True last."""
        is_asked = self._counts[2] != 0
        if is_asked:
            self._counts[2] = 0
        return is_asked

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
        end, start, _ = self._counts
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

    def write(self, line: str, *, is_call: bool = False, recorded_us: int = 0) -> int:
        """Write one complete line, and return the number of calls before it.

        Args:
            line: The line.
            is_call: True if it is a call.
            recorded_us: Time in µs since 1970 of what the flight recorder tells; 0 for a note of
                this thread.
        """
        thread = threading.get_ident()
        if recorded_us:
            line = f"@{RECORDER} {line}"
        elif thread != self._main:
            if thread not in self._threads:
                self._threads[thread] = self._free.pop() if self._free else len(self._threads)
            line = f"@{self._threads[thread]} {line}"
        if self._timed:
            line = f"t{recorded_us or time.time_ns() // 1000} {line}"
        data = f"{line}\n".encode("ascii")
        number = self.calls
        self.calls = number + is_call
        self._write(data)
        for copy in self.copies:
            copy.extend(data)
        return number


def note_line(note: object, *numbers: int) -> str:
    """Return the line of a note: its letter, numbers and fields.

    Args:
        note: The note, or call to define.
        numbers: Number of the group, if the note is about one; of a call, also its own number.
    """
    return " ".join([LETTERS[type(note)], *map(str, numbers), fields_text(note)])


def fields_text(note: object) -> str:
    """Return the fields of a note as JSON."""
    return json.dumps(encode(note, decodable=True), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class CallNote:
    """A rank makes a call.

    Attributes:
        group: Group of the call.
        call: Properties of the call.
        agreement: Values that must be equal on all ranks.
        thread: Thread that makes the call; 0 is the main thread.
        step: Number of steps before, if DDP or FSDP reduces gradients; otherwise -1.
        unordered: True if an `OrderNote` tells its place among the calls of its group.
        serial: Number of the definition in this process; notes of the same one share it.
    """

    group: GroupKey
    call: RankCall
    agreement: tuple[object, ...]
    thread: int = 0
    step: int = -1
    unordered: bool = False
    serial: int = field(default_factory=count().__next__, compare=False)

    @property
    def recorded(self) -> bool:
        """True if only torch's flight recorder has the call."""
        return self.thread == RECORDER


@dataclass(frozen=True, slots=True)
class OrderNote:
    """Torch's flight recorder tells which call of the rank comes next on its group.

    Attributes:
        number: Number of the call on this rank; -1 once the recorder was read to the end.
    """

    number: int = -1


@dataclass(frozen=True, slots=True)
class LineNote:
    """Source line of a call that only torch's flight recorder has.

    Attributes:
        number: Number of the call on this rank.
        source_line: Its line.
    """

    number: int
    source_line: SourceLine


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
        op: Op of the call, if it is one.
    """

    did: str
    source_line: SourceLine
    then: SourceLine = field(default_factory=SourceLine)
    what: Misuse = "unwaited"
    op: str = ""


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
class Check:
    """Digests of tensors that the program compares itself.

    Attributes:
        number: Number of the check on its group, from 1.
        names: Names of the tensors.
        digests: Digest of each.
        source_line: Source line of the check.
    """

    number: int
    names: tuple[str, ...]
    digests: tuple[int, ...]
    source_line: SourceLine

    def __post_init__(self) -> None:
        """Raise `ValueError` unless each name has a digest."""
        if len(self.names) != len(self.digests):
            raise ValueError("the numbers of names and digests differ")


@dataclass(frozen=True, slots=True)
class TensorNote:
    """A parameter that the rank trains. A later note with the same number replaces it.

    Attributes:
        number: Number of the tensor on this rank.
        path: Path from the outermost module to it, or its place in the optimizer.
        root: Class of the outermost module; empty if no module holds it.
        shape: Its shape; of a DTensor, the whole one.
        dtype: torch's name of the element type.
        replaces: Number that it had before DDP gave it new values; -1 if it is new.
        groups: Numbers of the groups on which it is declared to be equal.
        keys: These groups, once they are read.
        piece: Place of the rank's piece of a DTensor, along the mesh's dimensions that divide it;
            None if the rank holds the whole tensor.
        ddp: True if DDP declares it.
        unregistered: True for a trainable parameter of a DDP module that DDP has not registered.
        buffer: True for a buffer of a DDP module which the program has replaced.
    """

    number: int
    path: str
    root: str
    shape: tuple[int, ...]
    dtype: str
    replaces: int = -1
    groups: tuple[int, ...] = ()
    keys: tuple[GroupKey, ...] = ()
    piece: tuple[int, ...] | None = None
    ddp: bool = False
    unregistered: bool = False
    buffer: bool = False


CONSTANT, GRADIENT, REDUCED, WRITTEN, CHANGED = 1, 2, 4, 8, 16
"""Flags of a sample: there are several elements, and all are equal; the gradient of the step that
begins isn't zero; that of the latest step was reduced on a group of the note; the program changed
the tensor after that step, before another one; or at the end, so that there is no sample."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of tensors at one moment; see `observe.memory.Sample`.

    Attributes:
        moment: ``step`` before a step, or ``end`` of the program or the default group.
        steps: Number of steps of these tensors before.
        numbers: Numbers of the tensors.
        digests: Digest of each.
        norms: Norm of each.
        projections: Projections of each.
        flags: Flags of each.
        gradients: Digest of each gradient of the step that begins; empty if not computed.
        clipped: Latest norm that ``clip_grad_norm_`` returned before the step; negative if none.
        optimizer: Number of the optimizer; see `TrainingNote`.
        source_line: Source line of the step.
    """

    moment: Literal["step", "end"]
    steps: int
    numbers: tuple[int, ...]
    digests: tuple[int, ...]
    norms: tuple[float, ...]
    projections: tuple[tuple[float, ...], ...]
    flags: tuple[int, ...]
    gradients: tuple[int, ...] = ()
    clipped: float = -1.0
    optimizer: int = 0
    source_line: SourceLine = field(default_factory=SourceLine)

    def __post_init__(self) -> None:
        """Raise `ValueError` unless each tensor has all values, and a gradient if one has."""
        count = len(self.numbers)
        values = self.digests, self.norms, self.projections, self.flags
        if any(len(column) != count for column in values) or len(self.gradients) not in (0, count):
            raise ValueError("the numbers of tensors and values differ")


@dataclass(frozen=True, slots=True)
class TrainingNote:
    """Facts about the steps of an optimizer. A later note with the same number replaces it.

    Attributes:
        number: Number of the optimizer on this rank, from 1; 0 for steps that the program makes.
        optimizer: Name of its class; empty for steps that the program makes.
        source_line: Source line of the latest step that was compared.
        steps: Number of its steps so far.
        without_gradient: Number of those in which no parameter had a gradient.
        unreduced: Number of those whose gradients no call reduced.
        why: Reason for these: DDP was not called, its backward passes ran in ``no_sync``, or a
            parameter had no gradient and was unused; empty if unknown.
        unused: Name of this parameter.
        joined: True if a step was made within DDP's ``join()``, so that ranks may make different
            numbers of steps.
    """

    number: int
    optimizer: str
    source_line: SourceLine = field(default_factory=SourceLine)
    steps: int = 0
    without_gradient: int = 0
    unreduced: int = 0
    why: Literal["", "not called", "no_sync", "unused"] = ""
    unused: str = ""
    joined: bool = False


@dataclass(frozen=True, slots=True)
class SamplerNote:
    """A `DistributedSampler` of the rank.

    Attributes:
        number: Number of the sampler on this rank, in the order of their first passes.
        source_line: Source line of the first pass, or of the pass without gradients.
        seed: Seed of its order; 0 if it doesn't shuffle.
        length: Number of samples of the dataset.
        indices: Checksum of the indices of its ``Subset``s; 0 if it is none.
        replicas: Number of ranks among which it divides the samples.
        repeated: Number of samples that it repeats, so that all ranks get as many.
        is_evaluation: True after a pass without gradients.
    """

    number: int
    source_line: SourceLine
    seed: int
    length: int
    indices: int
    replicas: int
    repeated: int
    is_evaluation: bool = False


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
class EndNote:
    """The rank's program has ended.

    Attributes:
        how: How it ended; ``unknown`` if there is no end note.
        error: Class of the exception that it raised.
        text: First line of the exception's message, or the argument of ``sys.exit``.
        exit_code: Exit code, if it exited.
        signal: Number of the signal that killed it.
        source_line: Source line that raised, or crashed.
        inside: Function of torch.distributed that raised, or empty.
        lost_peer: True if torch.distributed raised because another rank was gone.
    """

    how: Literal["returned", "raised", "exited", "killed", "unknown"]
    error: str = ""
    text: str = ""
    exit_code: int = 0
    signal: int = 0
    source_line: SourceLine = field(default_factory=SourceLine)
    inside: str = ""
    lost_peer: bool = False


@dataclass(frozen=True, slots=True)
class Destruction:
    """The rank destroys a group, and makes no more calls on it.

    Attributes:
        source_line: Source line.
        failing: Exception being raised, which may end the program, or None.
        kept: True if the program has kept a reference to the group until its end, so that the
            group's connections are open.
    """

    source_line: SourceLine
    failing: EndNote | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """Torch's flight recorder has overwritten calls of the rank before they were read.

    Attributes:
        calls: Number of calls on all groups; 0 if unknown.
    """

    calls: int


NOTES: dict[str, Any] = {
    "X": StopNote,
    "B": MisuseNote,
    "U": UnseenNote,
    "P": TensorNote,
    "S": Samples,
    "T": TrainingNote,
    "L": SamplerNote,
    "E": EndNote,
}
"""Notes by the first letter of their lines."""
GROUP_NOTES: dict[str, Any] = {"R": Check, "V": Gradients, "D": Destruction, "O": Loss}
"""Notes about a group, likewise."""
CALLS: dict[str, type[RankCall]] = {"C": RankCall, "K": PartialCall}
"""Definitions of calls, likewise."""
LETTERS = {kind: letter for letter, kind in {**NOTES, **GROUP_NOTES, **CALLS}.items()}


@dataclass(frozen=True, slots=True)
class GroupNote:
    """Checksums of what all ranks of a group share, its destruction, or the loss of its calls."""

    group: GroupKey
    values: Check | Gradients | Destruction | Loss


Note = (
    CallNote
    | OrderNote
    | LineNote
    | AcceptNote
    | WaitNote
    | HandleNote
    | ReturnNote
    | ThreadEndNote
    | StopNote
    | MisuseNote
    | UnseenNote
    | TensorNote
    | Samples
    | TrainingNote
    | SamplerNote
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

    def call(self, number: int) -> CallNote | None:
        """Return the call that is defined under this number, or None."""
        return self._calls.get(number)

    def _note(self, line: str, thread: int) -> Note | None:
        """Return the note of a line, or None for a definition."""
        start, _, rest = line.partition(" ")
        if start.isdigit():
            note = self._calls[int(start)]
            if rest:
                step = rest.removesuffix("~").strip()
                is_unordered = rest.endswith("~")
                note = replace(note, step=_number(step) if step else -1, unordered=is_unordered)
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
            case "o":
                return OrderNote(_number(rest) if rest else -1)
            case "l":
                number, _, text = rest.partition(" ")
                return LineNote(_number(number), _json(SourceLine, text))
            case "x":
                return ThreadEndNote(thread, rest == "+")
            case _ if start in NOTES:
                read: Note = _json(NOTES[start], rest)
                if isinstance(read, TensorNote):
                    read = replace(read, keys=tuple(self._groups[number] for number in read.groups))
                return read
            case _ if start in GROUP_NOTES:
                name, text = rest.split(" ", 1)
                return GroupNote(self._groups[int(name)], _json(GROUP_NOTES[start], text))
            case "G":
                name, nth, used, text = rest.split(" ", 3)
                backend, _, device = used.partition("/")
                key = GroupKey(self._members(text), backend, _number(nth), device)
                self._groups[_number(name, MAX_GROUPS)] = key
            case _ if start in CALLS:
                number, name, text = rest.split(" ", 2)
                key = self._groups[int(name)]
                call = replace(_json(CALLS[start], text), group=key.members)
                if backend_named(key.backend).copies_strided:
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
