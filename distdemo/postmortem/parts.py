"""What one file has, and the limits of what a file may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from distdemo.postmortem.evidence import Dump, End
from distdemo.sanitizer.records import SourceLine

MAX_CALLS = 1_000_000  # calls in one file
MAX_ENDS = 10_000  # errors in one file
MAX_LINE = 4_000  # characters of a line that are read
MAX_TEXT = 500  # characters of a name


@dataclass(slots=True)
class Parts:
    """Evidence in one file.

    Attributes:
        kind: Format, ``dump``; empty if the file can't be used.
        why: Reason why it can't be used.
        dumps: Calls of ranks.
        ends: How ranks ended.
        stand: Source line and collective of the rank, if its stack was dumped.
    """

    kind: str = ""
    why: str = ""
    dumps: list[tuple[int, Dump]] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    stand: tuple[SourceLine, str] | None = None
    call_count: int = 0

    def add(self, rank: int, dump: Dump) -> None:
        """Add calls of a rank.

        Raises:
            ValueError: The file has too many calls.
        """
        self.call_count += sum(len(track.calls) for track in dump.tracks.values())
        if self.call_count > MAX_CALLS:
            raise ValueError(f"it has more than {MAX_CALLS:,} calls")
        self.dumps.append((rank, dump))

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
