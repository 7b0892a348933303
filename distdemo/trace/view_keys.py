"""Keys pressed while something plays: read one by one, unseen; the terminal is put back."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from typing_extensions import Self

from distdemo.errors import Terminated

NAMES = {
    " ": "pause",
    "n": "next",
    "\x1b[C": "next",
    "\x1bOC": "next",
    "p": "back",
    "\x1b[D": "back",
    "\x1bOD": "back",
    "+": "faster",
    "=": "faster",
    "\x1b[A": "faster",
    "\x1bOA": "faster",
    "-": "slower",
    "\x1b[B": "slower",
    "\x1bOB": "slower",
    "0": "restart",
    "\x1b[H": "restart",
    "\x1bOH": "restart",
    "\x1b[1~": "restart",
    "q": "quit",
    "\x04": "quit",
}
"""What a terminal sends for a key, and what that means; arrows as in both of its modes."""
LONGEST = max(map(len, NAMES))
ESCAPE = "\x1b"


class Keys(ABC):
    """Where keys come from, and the clock that goes with them."""

    @abstractmethod
    def read(self, seconds: float) -> list[str]:
        """What was asked for since the last time; waits so long at most if there is nothing."""

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()


class NoKeys(Keys):
    """Nobody can press any: time passes."""

    def read(self, seconds: float) -> list[str]:
        """Nothing, after so many seconds."""
        time.sleep(seconds)
        return []


class TerminalKeys(Keys):
    """The keys of a terminal, without waiting for Enter and without an echo, within a block.

    Args:
        descriptor: of the terminal.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = ""

    def __enter__(self) -> Self:
        import termios
        import tty

        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSANOW)  # Ctrl-C still interrupts
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        with suppress(termios.error):  # the terminal has gone, and what was to be put back
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._before)

    def read(self, seconds: float) -> list[str]:
        """What was asked for; ``quit`` if the terminal has gone."""
        import select

        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            self._rest = ""  # an Escape that nothing followed
            return []
        try:
            came = os.read(self._descriptor, 64)
        except OSError:
            came = b""
        if not came:
            return ["quit"]
        asked, self._rest = split(self._rest + came.decode("ascii", "replace"))
        return asked


def split(typed: str) -> tuple[list[str], str]:
    """What these characters ask for, and the beginning of a sequence that has not ended."""
    asked: list[str] = []
    while typed:
        name = next((key for key in NAMES if typed.startswith(key)), None)
        if name is not None:
            asked.append(NAMES[name])
        elif typed[0] == ESCAPE and any(key.startswith(typed) for key in NAMES):
            return asked, typed
        typed = typed[len(name) if name else 1 :]
    return asked, ""


def has_terminal() -> bool:
    """Whether somebody can press keys that we may read: a terminal, and we are in front of it."""
    try:
        descriptor = sys.stdin.fileno()
        return os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no stdin, a closed one, or no POSIX
        return False


@contextmanager
def pressed() -> Iterator[Keys]:
    """The keys of standard input, if it is a terminal; the terminal is put back in any case.

    Raises:
        Terminated: SIGTERM or SIGHUP came.
    """
    with _raising():
        if not has_terminal():
            yield NoKeys()
            return
        with TerminalKeys(sys.stdin.fileno()) as keys:
            yield keys


@contextmanager
def _raising() -> Iterator[None]:
    """Signals that would end the process at once become an exception, so that it can tidy up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)]
    before = {number: signal.signal(number, _raise) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise Terminated
