"""Signals that stop a command, and the exit code that they lead to."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, Terminated

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

RESEND_S = 0.01  # until a signal is sent again whose exception Python discarded
_received: set[int] = set()
_report: Callable[[str], object] | None = None


def install() -> None:
    """Turn SIGTERM and SIGHUP (the terminal was closed) into exceptions, as Ctrl-C is one.

    What is ignored, as by nohup, stays ignored.
    """
    _received.clear()
    owner = os.getpid()

    def resend(discarded: UnraisableHookArgs) -> None:
        stop = discarded.exc_value
        if os.getpid() != owner or not isinstance(stop, KeyboardInterrupt | Terminated):
            sys.__unraisablehook__(discarded)
            return
        # Python discards exceptions in weakref callbacks and __del__, and importlib calls such a
        # callback after each import.
        number = signal.Signals[str(stop)] if isinstance(stop, Terminated) else signal.SIGINT
        signal.signal(number, _on_signal)
        threading.Timer(RESEND_S, os.kill, (owner, number)).start()

    sys.unraisablehook = resend
    signal.signal(signal.SIGTERM, _on_signal)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL, _on_signal):
            signal.signal(number, _on_signal)


def on_import(report: Callable[[str], object]) -> None:
    """Exit at once, after this report, if a signal arrives while torch is imported."""
    global _report  # noqa: PLW0603 - a process has one set of handlers
    _report = report


def _on_signal(number: int, _: FrameType | None) -> NoReturn:
    _received.add(number)
    stop = (
        KeyboardInterrupt() if number == signal.SIGINT else Terminated(signal.Signals(number).name)
    )
    importer = sys.modules.get("distdemo.launcher.torch_import")
    importing = importer is not None and importer.is_importing()
    if importing and _report is not None:  # nothing has been started yet
        try:
            _report(what_stopped(stop))
        finally:  # torch would catch an exception here
            os._exit(exit_code())
    if number != signal.SIGINT:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise stop


def what_stopped(stop: BaseException) -> str:
    """Return the sentence that reports a signal's exception."""
    return f"Stopped by {stop}." if isinstance(stop, Terminated) else "Interrupted."


def interrupted() -> bool:
    """Return True if Ctrl-C was pressed, wherever the exception was caught."""
    return signal.SIGINT in _received


def exit_code() -> int:
    """Return the exit code after a signal, or 0 if none arrived."""
    return EXIT_INTERRUPTED if interrupted() else EXIT_FAILED if _received else 0
