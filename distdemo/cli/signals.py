"""The signals that ask a command to stop, and the exit code that they leave it with."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, Terminated

_came: set[int] = set()


def install() -> None:
    """From here on SIGTERM is an exception, as Ctrl-C is, and what comes is remembered."""
    _came.clear()
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _stop):
        signal.signal(signal.SIGINT, _stop)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    _came.add(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise Terminated


def interrupted() -> bool:
    """Whether Ctrl-C was pressed, wherever the exception was caught."""
    return signal.SIGINT in _came


def exit_code() -> int:
    """What to leave with for the sake of a signal; 0 if none came."""
    return EXIT_INTERRUPTED if interrupted() else EXIT_FAILED if _came else 0
