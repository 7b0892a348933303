"""Result of a reader: the calls of ranks, how ranks ended, and what tells whose they are.

Calls are numbers in a table and the calls of a rank are arrays, because a job can have thousands of
ranks with thousands of calls.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from distdemo.calls.records import RankCall, SourceLine

MAX_LINE = 4_000  # characters of a line that are read
MAX_GAP = 10_000  # lost calls between two that are compared
MAX_TEXT = 500  # characters of a name
GroupName = tuple[str, str, tuple[int, ...]]
"""Name, description and members of a group; no members if the format lacks them."""
Writer = tuple[Literal["rank", "local rank", "message", "file"], int]
"""Writer of a line, by its prefix, by a rank in the message, or by nothing but its file."""


class CallState(IntEnum):
    """State of a call. ENDED: it has completed or failed, and the backend doesn't say which."""

    SCHEDULED = 0
    STARTED = 1
    COMPLETED = 2
    ENDED = 3


@dataclass(slots=True)
class Span:
    """Calls of a rank in one group.

    Attributes:
        index: Index of the group among those of the rank.
        first: Number of the first known call.
        reached: Number of the last call; 0 for none.
    """

    index: int = 0
    first: int = 1
    reached: int = 0


@dataclass(slots=True)
class Dump:
    """Calls of one rank.

    Attributes:
        backend: ``nccl``, ``gloo``; empty if unknown.
        library: Version of the communication library, or empty.
        is_complete: True if it has the latest calls of all groups.
        limit_s: Time limit of a call; 0 if unknown.
        table: Distinct calls. The lines around a call's source line are part of the key.
        groups: Groups of the rank, in a fixed order.
        columns: Group, number in the group, index in the table, state and time of the rank's calls,
            in their order. Sends and receives have the number 0; times are in ns since 1970, or 0.
    """

    backend: str = ""
    library: str = ""
    is_complete: bool = False
    limit_s: float = 0.0
    table: dict[tuple[RankCall, object], int] = field(default_factory=dict)
    groups: dict[GroupName, Span] = field(default_factory=dict)
    columns: tuple[array[int], ...] = field(
        default_factory=lambda: tuple(array(code) for code in "LQLBQ")
    )

    def span(self, group: GroupName) -> Span:
        """Return what is known about a group; add it the first time."""
        return self.groups.setdefault(group, Span(len(self.groups)))

    def number(self, call: RankCall) -> int:
        """Return the index of a call in the table."""
        return self.table.setdefault((call, call.source_line.stack), len(self.table))

    def add(self, group: GroupName, number: int, call: int, state: int, at: int = 0) -> None:
        """Append a call. It is the first known one of its group if too many before it were lost."""
        span = self.span(group)
        if number:
            if not span.reached or number > span.reached + MAX_GAP:
                span.first = number
            span.reached = number
        for column, value in zip(self.columns, (span.index, number, call, state, at), strict=True):
            column.append(value)

    @property
    def times(self) -> array[int]:
        """Times of the calls."""
        return self.columns[-1]


@dataclass(frozen=True, slots=True)
class End:
    """End of a rank.

    Attributes:
        how: ``raised ValueError: bad``, ``died of SIGKILL``.
        source_line: Source line, or empty.
        is_consequence: True if it only lost a peer, timed out or was stopped.
        is_exit: True for an exit code in torchrun's table.
        is_first: True if torchrun saw this failure first.
        pid: Number of its process; 0 if unknown.
    """

    how: str
    source_line: str = ""
    is_consequence: bool = False
    is_exit: bool = False
    is_first: bool = False
    pid: int = 0

    @property
    def is_vague(self) -> bool:
        """True if it may be a consequence: an exit code that a lost connection gives, too."""
        return self.is_exit and self.how.endswith((" code 1", "SIGINT", "SIGTERM"))


@dataclass(slots=True)
class Content:
    """Content of one file.

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
