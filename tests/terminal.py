"""A program in a terminal of its own, with somebody who reads and types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forked import as_command
from helpers import PATIENCE, Run, started

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The other side of a terminal.

    Attributes:
        run: The program.
        raw: All that it has written.
        text: What hasn't been returned yet of it, without escape sequences.
    """

    def __init__(self, main: int, run: Run) -> None:
        self.run = run
        self.raw = ""
        self._main = main
        self._returned = 0

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")[self._returned :]

    def type(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def wait_for(self, wanted: str) -> str:
        """Return what is shown up to the end of this text; it has not been returned before."""
        self._read_until(lambda: wanted in self.text)
        shown = self.text[: self.text.index(wanted) + len(wanted)]
        self._returned += len(shown)
        return shown

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        with suppress(OSError):  # the other side is closed
            self._read_until(lambda: False)
        return self.run.process.wait(PATIENCE)

    def _read_until(self, is_complete: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not is_complete():
            assert time.monotonic() < until, self.raw
            if select.select([self._main], [], [], 1.0)[0]:
                self.raw += os.read(self._main, 1 << 16).decode(errors="replace")


@contextmanager
def in_a_terminal(
    words: list[str],
    folder: Path,
    *,
    by: Callable[..., dict[str, Any]] = as_command,
    env: Mapping[str, str | None] | None = None,
) -> Iterator[Terminal]:
    """Start a program in a terminal of 80 columns.

    Args:
        words: Arguments of the program.
        folder: Folder for its temporary files.
        by: ``as_command`` or ``as_python``.
        env: Changes to its environment; None removes a variable.
    """
    settings = {"NO_COLOR": None, "CI": None, "TERM": "xterm-256color", "COLUMNS": "80"}
    main, side = pty.openpty()
    try:
        with started(
            words,
            folder,
            by=by,
            env={**settings, **(env or {})},
            enter=_own_the_terminal,
            stdin=side,
            stdout=side,
            stderr=side,
        ) as run:
            os.close(side)
            yield Terminal(main, run)
    finally:
        os.close(main)


def _own_the_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C is a signal."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
