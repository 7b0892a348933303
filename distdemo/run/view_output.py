"""Ranks' output: keep it, and print it as it arrives or at the end."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.text import Text

from distdemo.run.records import RankOutput
from distdemo.view import colours
from distdemo.view.blocks import Paragraph
from distdemo.view.console import Signs, output, signs
from distdemo.view.foreign import line_of, lines_of
from distdemo.view.format import plural, ranks_text

MAX_BYTES = 8 << 20  # bytes kept of one rank's output
MAX_TOTAL_BYTES = 64 << 20  # bytes kept of all ranks' output
MIN_BYTES = 1 << 16  # bytes kept of every rank's output, even in large worlds
FIRST_LINES, LAST_LINES = 200, 300  # lines shown of long output
UNFINISHED_S = 0.3  # seconds after which an unfinished line is shown
REDRAW_S = 2.0  # seconds between two states of a progress bar
MAX_CHARS_HELD = 1 << 16  # characters of an unfinished line that are held back

# Output of gloo when a group is created (torch 2.6 to 2.8).
_GLOO_NOISE = re.compile(
    r"^\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    r"Expected number of connected peer ranks is : \d+\r?(?:\n|\Z)",
    re.MULTILINE,
)


class Transcript:
    """Beginning and end of one rank's output.

    Args:
        kept: Bytes to keep, half of them from the beginning and half from the end.
    """

    def __init__(self, kept: int) -> None:
        self._half = kept // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._count = 0

    def add(self, piece: bytes) -> None:
        """Add a piece of output."""
        self._count += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half:  # not for every piece: it moves the whole tail
            del self._tail[: -self._half]

    def finished(self) -> tuple[str, int]:
        """Return the text and the number of bytes left out, between two lines if possible."""
        head, tail = bytes(self._head), bytes(self._tail)
        if len(head) + len(tail) == self._count:
            return _text(head + tail), 0
        tail = tail[-self._half :]
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :] or tail
        left_out = self._count - len(head) - len(tail)
        between = "" if head.endswith(b"\n") else "\n"
        gap = f"{between}[... {left_out:,} bytes left out ...]\n"
        return _text(head) + gap + _text(tail), left_out


def transcripts(world_size: int) -> list[Transcript]:
    """Return an empty transcript per rank of a world."""
    kept = max(MIN_BYTES, min(MAX_BYTES, MAX_TOTAL_BYTES // world_size))
    return [Transcript(kept) for _ in range(world_size)]


def _text(data: bytes) -> str:
    return _GLOO_NOISE.sub("", data.decode(errors="replace"))


class Stream:
    """Print lines as they arrive, each with its rank: ``0 │ text``.

    The launcher's loop calls it, so it may only block on standard output.

    Args:
        ranks: Ranks to show.
        file: Output file [default: standard output].
    """

    def __init__(self, ranks: frozenset[int], file: TextIO | None = None) -> None:
        self._file = sys.stdout if file is None else file
        console = output(self._file)
        bar = signs(console).bar
        width = len(str(max(ranks, default=0)))
        self._lines = {
            rank: _Line(_painted(console, f"{rank:>{width}} {bar} ", colours.of_rank(rank)))
            for rank in sorted(ranks)
        }

    def write(self, rank: int, piece: bytes) -> None:
        """Add a piece of a rank's output; print complete lines, and unfinished ones in time."""
        now = time.monotonic()
        shown = [] if rank not in self._lines else self._lines[rank].add(piece, now)
        for line in self._lines.values():
            shown += line.overdue(now)
        self._print(shown)

    def flush(self) -> None:
        """Print the rest of every rank's last line."""
        self._print([text for line in self._lines.values() for text in line.rest()])

    def _print(self, lines: list[str]) -> None:
        if not lines:
            return
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        text = "".join(f"{line}\n" for line in lines)
        self._file.write(text.encode(encoding, "replace").decode(encoding))
        self._file.flush()


class _Line:
    """The unfinished line of a rank.

    Args:
        prefix: Text before each of the rank's lines.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._since = 0.0

    def add(self, piece: bytes, now: float) -> list[str]:
        """Add a piece of output; return the lines that are now complete."""
        if not self._begun:
            self._since = now
        *whole, rest = (self._begun + self._decoder.decode(piece)).split("\n")
        if whole:
            self._since = now
        self._begun = rest
        lines = [self._shown(line) for line in whole if not _GLOO_NOISE.match(line)]
        return lines if len(rest) <= MAX_CHARS_HELD else [*lines, *self.rest()]

    def overdue(self, now: float) -> list[str]:
        """Return an unfinished line after a while, or the latest state of a progress bar."""
        redrawn = "\r" in self._begun.rstrip("\r")
        waits = REDRAW_S if redrawn else UNFINISHED_S
        if not self._begun.strip("\r") or now - self._since < waits:
            return []
        return self.rest()

    def rest(self) -> list[str]:
        """Return the unfinished line."""
        begun, self._begun = self._begun, ""
        return [self._shown(begun)] if begun.strip("\r") else []

    def _shown(self, line: str) -> str:
        return f"{self._prefix}{line_of(line)}".rstrip()


def _painted(console: Console, text: str, style: str) -> str:
    """Return the text in colour if the console is a terminal."""
    if not console.is_terminal:
        return text
    with console.capture() as captured:
        console.print(Text(text, style=style), end="")
    return captured.get()


def captured_output(
    ranks: tuple[RankOutput, ...], sign: Signs, *, whole: bool
) -> Iterator[Paragraph]:
    """Yield the output of each rank, or of each group of ranks with the same output.

    Args:
        ranks: Output of each rank, in order.
        sign: Signs of the terminal.
        whole: True to show long output in full.
    """
    groups: dict[str, list[int]] = {}
    for own in ranks:
        groups.setdefault(own.output, []).append(own.rank)
    for text, members in groups.items():
        style = colours.of_rank(members[0]) if len(members) == 1 else ""
        who = f"Rank{'s' * (len(members) > 1)} {ranks_text(members)}"
        yield Paragraph(f"{who}:" if text else f"{who}: no output", f"bold {style}")
        lines = lines_of(text)
        left_out = len(lines) - FIRST_LINES - LAST_LINES
        if left_out > 0 and not whole:
            more = (
                f"{sign.more} {plural(left_out, 'line')} left out: --ranks {members[0]} shows all."
            )
            lines = [*lines[:FIRST_LINES], more, *lines[-LAST_LINES:]]
        if lines:
            yield Paragraph("\n".join(lines), verbatim=True)
    yield Paragraph()
