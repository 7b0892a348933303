"""Print the ranks' output as it arrives, each line with its rank."""

from __future__ import annotations

import codecs
import re
import sys
import time
from typing import TextIO

from rich.console import Console
from rich.text import Text

from distdemo.view import colours
from distdemo.view.console import output, signs
from distdemo.view.foreign import line_of

UNFINISHED_S = 1.0  # seconds after which an unfinished line is shown, such as a progress bar
MAX_CHARS_HELD = 1 << 16  # characters of an unfinished line that are held back

# Output of gloo when a group is created (torch 2.6 to 2.8).
GLOO_NOISE = re.compile(
    r"^\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    r"Expected number of connected peer ranks is : \d+\r?(?:\n|\Z)",
    re.MULTILINE,
)


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
            rank: RankLines(_painted(console, f"{rank:>{width}} {bar} ", colours.of_rank(rank)))
            for rank in sorted(ranks)
        }

    def write(self, rank: int, piece: bytes) -> None:
        """Add a piece of a rank's output; print complete lines, and unfinished ones in time."""
        now = time.monotonic()
        shown = [] if rank not in self._lines else self._lines[rank].add(piece, now)
        for line in self._lines.values():
            if now - line.since > UNFINISHED_S:
                shown += line.rest()
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


class RankLines:
    """Splits the output of a rank into lines.

    Args:
        prefix: Text before each line.

    Attributes:
        since: Time of the first character of the unfinished line.
    """

    def __init__(self, prefix: str = "") -> None:
        self.since = 0.0
        self._prefix = prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def add(self, piece: bytes, now: float) -> list[str]:
        """Add a piece of output; return the lines that are now complete."""
        *whole, rest = (self._begun + self._decoder.decode(piece)).split("\n")
        if whole or not self._begun:
            self.since = now
        self._begun = rest
        lines = [self._shown(line) for line in whole if not GLOO_NOISE.match(line)]
        return lines if len(rest) <= MAX_CHARS_HELD else [*lines, *self.rest()]

    def rest(self) -> list[str]:
        """Return the unfinished line."""
        begun = self._begun
        self._begun = ""
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
