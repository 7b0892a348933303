"""Signals that stop a command, and the exit code that they lead to."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, Terminated

_received: set[int] = set()


def install() -> None:
    """Turn SIGTERM and SIGHUP (the terminal was closed) into exceptions, as Ctrl-C is one.

    What is ignored, as by nohup, stays ignored.
    """
    _received.clear()
    signal.signal(signal.SIGTERM, _stop)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL, _stop):
            signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    _received.add(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    for each in (signal.SIGTERM, signal.SIGHUP):  # once is enough
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(signal.Signals(number).name)


def interrupted() -> bool:
    """Return True if Ctrl-C was pressed, wherever the exception was caught."""
    return signal.SIGINT in _received


def exit_code() -> int:
    """Return the exit code after a signal, or 0 if none arrived."""
    return EXIT_INTERRUPTED if interrupted() else EXIT_FAILED if _received else 0
