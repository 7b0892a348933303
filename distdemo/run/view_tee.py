"""What ranks write, shown as it comes: whole lines, each with its rank before it.

Called from the launcher's own loop, so it never waits for anything but the reader of standard
output, and needs no thread.
"""

from __future__ import annotations

import codecs
import sys
import time
from typing import TextIO

from rich.console import Console
from rich.text import Text

from distdemo.run.records import without_chatter
from distdemo.view import colours
from distdemo.view.console import output, signs
from distdemo.view.written import line_of

PATIENCE = 0.3  # seconds after which a line without an end is shown as far as it came
REDRAWN = 2.0  # seconds between two looks at a bar that is drawn over itself
LONGEST = 1 << 16  # characters of a line that are held back


class Tee:
    """Shows lines as ``0 │ text``.

    Args:
        world_size: how many ranks.
        only: the ranks that are shown; None: all.
        file: where to; by default standard output.
    """

    def __init__(
        self, world_size: int, only: frozenset[int] | None = None, file: TextIO | None = None
    ) -> None:
        self._file = sys.stdout if file is None else file
        console = output(self._file)
        bar = "│" if signs(console).right == "✓" else "|"
        width = len(str(world_size - 1))
        self._lines = {
            rank: _Line(_painted(console, f"{rank:>{width}} {bar} ", colours.of_rank(rank)))
            for rank in range(world_size)
            if only is None or rank in only
        }

    def wrote(self, rank: int, piece: bytes) -> None:
        """A rank has written this; shows the lines that it ends, and what waited for too long."""
        now = time.monotonic()
        shown = [] if rank not in self._lines else self._lines[rank].add(piece, now)
        for line in self._lines.values():
            shown += line.overdue(now)
        self._write(shown)

    def flush(self) -> None:
        """The ranks have ended: show what is left of their last lines."""
        self._write([text for line in self._lines.values() for text in line.rest()])

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        text = "".join(f"{line}\n" for line in lines)
        self._file.write(text.encode(encoding, "replace").decode(encoding))
        self._file.flush()


class _Line:
    """The line that a rank is writing.

    Args:
        prefix: stands before each of its lines.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._since = 0.0

    def add(self, piece: bytes, now: float) -> list[str]:
        """Take what was written and give back the lines that are complete."""
        if not self._begun:
            self._since = now
        *whole, rest = (self._begun + self._decoder.decode(piece)).split("\n")
        if whole:
            self._since = now
        self._begun = rest
        lines = [self._shown(line) for line in whole if without_chatter(line) == line]
        return lines if len(rest) <= LONGEST else [*lines, *self.rest()]

    def overdue(self, now: float) -> list[str]:
        """What has come of a line that takes long; of a bar, its latest state."""
        redrawn = "\r" in self._begun.rstrip("\r")
        waits = REDRAWN if redrawn else PATIENCE
        if not self._begun.strip("\r") or now - self._since < waits:
            return []
        return self.rest()

    def rest(self) -> list[str]:
        """What has come of the line."""
        begun, self._begun = self._begun, ""
        return [self._shown(begun)] if begun.strip("\r") else []

    def _shown(self, line: str) -> str:
        return f"{self._prefix}{line_of(line)}".rstrip()


def _painted(console: Console, text: str, style: str) -> str:
    """The text with the console's own codes for the colour; as it is where there are none."""
    if not console.is_terminal:
        return text
    with console.capture() as captured:
        console.print(Text(text, style=style), end="")
    return captured.get()
