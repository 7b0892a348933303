"""Content of one file, and the limits of what a file may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from distdemo.calls.records import SourceLine
from distdemo.postmortem.evidence import Dump, End

MAX_CALLS = 1_000_000  # calls in one file
MAX_ENDS = 10_000  # errors in one file
MAX_LINE = 4_000  # characters of a line that are read
MAX_TEXT = 500  # characters of a name


Writer = tuple[Literal["rank", "local rank", "message", "file"], int]
"""Writer of a line, by its prefix, by a rank in the message, or by nothing but its file."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Row of torchrun's table of failures.

    Attributes:
        host: Host of the rank; empty if unknown.
        rank: Global rank.
        local_rank: Number of the rank on its host, or None.
        code: Exit code; negative for a signal.
        pid: Number of the process; 0 if unknown.
        is_first: True if torchrun saw this failure first.
    """

    host: str
    rank: int
    local_rank: int | None
    code: int
    pid: int
    is_first: bool


@dataclass(slots=True)
class Log:
    """Messages in one file.

    Attributes:
        writers: Writers of its lines.
        dumps: Calls by writer.
        ends: How writers ended, in the order of the lines; their ranks aren't set.
        exits: Rows of torchrun's tables.
        pairs: Local and global rank of lines that have both.
        out_of_memory: Processes that the kernel killed.
    """

    writers: set[Writer] = field(default_factory=set)
    dumps: list[tuple[Writer, Dump]] = field(default_factory=list)
    ends: list[tuple[Writer, End]] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    out_of_memory: set[int] = field(default_factory=set)

    @property
    def global_ranks(self) -> set[int]:
        """Global ranks in prefixes of lines."""
        return {number for kind, number in self.writers if kind == "rank"}

    @property
    def has_local_ranks(self) -> bool:
        """True if lines have the prefix of a local rank and no global rank."""
        return any(kind == "local rank" for kind, _ in self.writers)

    @property
    def is_shared(self) -> bool:
        """True if several ranks or torchrun itself wrote it."""
        return bool(self.exits or self.has_local_ranks) or len(self.global_ranks) > 1


@dataclass(slots=True)
class Parts:
    """Evidence in one file.

    Attributes:
        kind: Format, ``dump``; empty if the file can't be used.
        why: Reason why it can't be used.
        dumps: Calls of ranks.
        ends: How ranks ended.
        stand: Source line and collective of the rank, if its stack was dumped.
        log: Messages of ranks whose numbers other files may have.
    """

    kind: str = ""
    why: str = ""
    dumps: list[tuple[int, Dump]] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    stand: tuple[SourceLine, str] | None = None
    log: Log | None = None
    call_count: int = 0

    def add(self, rank: int, dump: Dump) -> None:
        """Add calls of a rank.

        Raises:
            ValueError: The file has too many calls.
        """
        self.count(dump)
        self.dumps.append((rank, dump))

    def count(self, dump: Dump) -> None:
        """Count the calls of a dump.

        Raises:
            ValueError: The file has too many calls.
        """
        self.call_count += sum(len(track.calls) for track in dump.tracks.values())
        if self.call_count > MAX_CALLS:
            raise ValueError(f"it has more than {MAX_CALLS:,} calls")

    def add_end(self, end: End) -> None:
        """Add the end of a rank.

        Raises:
            ValueError: The file has too many.
        """
        if len(self.ends) >= MAX_ENDS:
            raise ValueError(f"it has more than {MAX_ENDS:,} errors")
        self.ends.append(end)


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
