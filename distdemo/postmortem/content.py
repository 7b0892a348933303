"""What a reader returns: the calls of ranks, how ranks ended, and what tells whose they are.

Calls are numbers in a table and the calls of a rank are arrays, because a job can have thousands of
ranks with thousands of calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from distdemo.calls.records import Call, SourceLine

SCHEDULED, STARTED, COMPLETED, ENDED = range(4)
"""States of a call. ENDED: it has completed or failed, and the backend doesn't say which."""
MAX_LINE = 4_000  # characters of a line that are read
MAX_TEXT = 500  # characters of a name
GroupName = tuple[str, str, tuple[int, ...]]
"""Name, description and members of a group; no members if the format lacks them."""
Writer = tuple[Literal["rank", "local rank", "message", "file"], int]
"""Writer of a line, by its prefix, by a rank in the message, or by nothing but its file."""
Table = dict[tuple[Call, object], int]
"""Calls by number. The lines around a call's source line are part of the key."""


def number_of(table: Table, call: Call) -> int:
    """Return the number of a call; add it to the table the first time."""
    return table.setdefault((call, call.source_line.stack), len(table))


@dataclass(slots=True)
class Track:
    """Calls of one rank in one group, numbered without gaps.

    Attributes:
        first: Number of the first known call.
        calls: Number of each call in a table.
        states: State of each call.
        orders: Number of calls that the rank had made before, in all groups.
        created: Time of each call in ns since 1970; 0 if unknown.
    """

    first: int
    calls: array[int] = field(default_factory=lambda: array("I"))
    states: bytearray = field(default_factory=bytearray)
    orders: array[int] = field(default_factory=lambda: array("I"))
    created: array[int] = field(default_factory=lambda: array("q"))

    @property
    def reached(self) -> int:
        """Number of the last call."""
        return self.first + len(self.calls) - 1

    def add(self, call: int, state: int, order: int, created: int = 0) -> None:
        """Append a call."""
        self.calls.append(call)
        self.states.append(state)
        self.orders.append(order)
        self.created.append(created)


@dataclass(slots=True)
class Dump:
    """Calls of one rank.

    Attributes:
        backend: ``nccl``, ``gloo``; empty if unknown.
        library: Version of the communication library, or empty.
        is_complete: True if it has the latest calls of all groups.
        table: Calls by number.
        tracks: Calls by group.
        groups: Groups that the rank is in, also without calls.
        pairs: Sends and receives that haven't completed: order, group and number in the table.
        limit_s: Time limit of a call; 0 if unknown.
    """

    backend: str = ""
    library: str = ""
    is_complete: bool = False
    table: Table = field(default_factory=dict)
    tracks: dict[GroupName, Track] = field(default_factory=dict)
    groups: list[GroupName] = field(default_factory=list)
    pairs: list[tuple[int, GroupName, int]] = field(default_factory=list)
    limit_s: float = 0.0

    @property
    def latest(self) -> int:
        """Time of the last call in ns since 1970, or 0."""
        return max((track.created[-1] for track in self.tracks.values()), default=0)


@dataclass(frozen=True, slots=True)
class End:
    """End of a rank.

    Attributes:
        how: ``raised ValueError: bad``, ``died of SIGKILL``.
        source_line: Source line, or empty.
        is_consequence: True if it only lost a peer, timed out or was stopped.
        is_exit: True for an exit code in torchrun's table.
        is_first: True if torchrun saw this failure first.
        is_vague: True if it may be a consequence: an exit code that a lost connection also gives.
        pid: Number of its process; 0 if unknown.
    """

    how: str
    source_line: str = ""
    is_consequence: bool = False
    is_exit: bool = False
    is_first: bool = False
    is_vague: bool = False
    pid: int = 0


@dataclass(slots=True)
class Content:
    """What one file has.

    Attributes:
        kind: Format, ``dump``; empty if the file can't be used.
        why: Reason why it can't be used.
        dumps: Calls of ranks.
        ends: How ranks ended, in the order of the lines.
        stopped: Ranks that torchrun stopped.
        writers: Writers of its lines.
        hosts: Name of a host, or empty for that of the file, and its first rank.
        out_of_memory: Processes that the kernel killed.
        stand: Source line and collective of the rank, if its stack was dumped.
    """

    kind: str = ""
    why: str = ""
    dumps: list[tuple[Writer, Dump]] = field(default_factory=list)
    ends: list[tuple[Writer, End]] = field(default_factory=list)
    stopped: set[int] = field(default_factory=set)
    writers: set[Writer] = field(default_factory=set)
    hosts: set[tuple[str, int]] = field(default_factory=set)
    out_of_memory: set[int] = field(default_factory=set)
    stand: tuple[SourceLine, str] | None = None

    @property
    def is_shared(self) -> bool:
        """True if several ranks or torchrun itself wrote it."""
        kinds = [kind for kind, _ in self.writers]
        has_table = bool(self.stopped) or any(end.is_exit for _, end in self.ends)
        return has_table or "local rank" in kinds or kinds.count("rank") > 1


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each cut off at `MAX_LINE` characters."""
    for line in text.splitlines():
        yield line[:MAX_LINE]


def whole(value: object, limit: int = 1 << 63) -> int:
    """Return a whole number from outside.

    Raises:
        ValueError: It is not an int from 0 to below the limit.
    """
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError("a number is out of range")
    return value


def name(value: object) -> str:
    """Return a name from outside, cut off at `MAX_TEXT` characters.

    Raises:
        ValueError: It is not a text.
    """
    if type(value) is not str:
        raise ValueError("a name is no text")
    return value[:MAX_TEXT]
