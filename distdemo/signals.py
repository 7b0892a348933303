"""Signals: stop a command, and defer Ctrl-C and other signals while ranks run."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from types import FrameType
from typing import TYPE_CHECKING, Any

from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, Terminated

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

EXIT_TIMEOUT_S = 1.5  # from a signal until the process exits, if nothing is left but to report
RESEND_S = 0.01  # until a signal is sent again whose exception Python discarded
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# ------------------------------------------------------------------------------------- a command


class Stage(Enum):
    """Stage of a command, which decides what a signal does."""

    STARTING = auto()  # nothing has been started: it is reported, and the process exits
    RUNNING = auto()  # it raises an exception; within `uninterruptible`, it does as above
    SHOWING = auto()  # the result is complete: the process has `EXIT_TIMEOUT_S` seconds to exit


_received: set[int] = set()
_stage = Stage.STARTING
_uninterruptible = 0  # blocks in progress
_report: Callable[[str], object]
_before_exit: Callable[[BaseException], object]
_result_code: int | None = None  # exit code of the result that has been shown


def install(report: Callable[[str], object] | None = None) -> None:
    """Handle Ctrl-C, SIGTERM and SIGHUP (the terminal was closed).

    What is ignored, as by nohup, stays ignored.

    Args:
        report: Function that reports a signal that ends the process before a rank has started; by
            default the text is written to standard error.
    """
    global _report, _before_exit, _result_code  # noqa: PLW0603 - a process has one set of handlers
    _received.clear()
    _result_code = None
    _report = report or _write
    _before_exit = repr  # nothing to do
    enter(Stage.STARTING)
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
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, ranks can't be waited for
    for number in SIGNALS:
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


def enter(stage: Stage) -> None:
    """Enter the next stage of the command."""
    global _stage  # noqa: PLW0603 - as above
    _stage = stage


def before_exit(function: Callable[[BaseException], object]) -> None:
    """Call this function with a signal's exception that ends the process instead of being raised.

    It says in the files of the command that there is no result.
    """
    global _before_exit  # noqa: PLW0603 - as above
    _before_exit = function


@contextmanager
def uninterruptible() -> Iterator[None]:
    """Context in which a handler must not raise: torch is being imported.

    Modules would swallow the exception or stay half imported.
    """
    global _uninterruptible  # noqa: PLW0603 - as above
    _uninterruptible += 1
    try:
        yield
    finally:
        _uninterruptible -= 1


def shown(code: int) -> None:
    """Exit with this code from now on: the result has been shown."""
    global _result_code  # noqa: PLW0603 - as above
    _result_code = code


def is_shown() -> bool:
    """Return True if the result has been shown."""
    return _result_code is not None


def _write(what: str) -> None:
    os.write(2, f"{what}\n".encode())


def _on_signal(number: int, _: FrameType | None) -> None:
    if _stage is Stage.SHOWING:
        _exit_soon(_exit_code({number}))
        return
    _received.add(number)
    stop = _exception(number)
    if _stage is Stage.STARTING or _uninterruptible:
        _exit_soon(exit_code())
        with suppress(Exception):  # as below
            _before_exit(stop)
        try:
            _report(what_stopped(stop))
        except Exception:  # a module that it needs is being imported
            _write(what_stopped(stop))
        finally:
            os._exit(exit_code())
    if number != signal.SIGINT:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise stop


def _exit_soon(code: int) -> None:
    """Exit in `EXIT_TIMEOUT_S` seconds at most, whatever this process is waiting for."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)

    def exit_now() -> None:
        os._exit(code if _result_code is None else _result_code)

    limit = threading.Timer(EXIT_TIMEOUT_S, exit_now)
    limit.daemon = True
    limit.start()


def _exception(number: int) -> KeyboardInterrupt | Terminated:
    if number == signal.SIGINT:
        return KeyboardInterrupt()
    return Terminated(signal.Signals(number).name)


def raise_received() -> None:
    """Raise the exception of a signal that has arrived, wherever it was caught before."""
    for number in _received:
        raise _exception(number)


def what_stopped(stop: BaseException) -> str:
    """Return the sentence that reports a signal's exception."""
    return f"Stopped by {stop}." if isinstance(stop, Terminated) else "Interrupted."


def interrupted() -> bool:
    """Return True if Ctrl-C was pressed, wherever the exception was caught."""
    return signal.SIGINT in _received


def exit_code() -> int:
    """Return the exit code after a signal, or 0 if none arrived."""
    return _exit_code(_received)


def _exit_code(received: set[int]) -> int:
    if signal.SIGINT in received:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if received else 0


# ---------------------------------------------------------------------------------------- a world


class Interrupts:
    """Context in which a signal only sets ``received`` and makes ``fileno()`` readable.

    On exit the previous handlers are restored; ``redeliver`` then sends them the signal. Python
    allows handlers in the main thread only, so in other threads no signal is caught.

    Attributes:
        received: Number of the signal, or None.
        descriptors: Both ends of a pipe, which forked children must close.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._owner = os.getpid()
        self._before: dict[int, Any] = {}
        self.descriptors = self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Return a descriptor that is readable once a signal has arrived."""
        return self._read

    def __enter__(self) -> Interrupts:  # noqa: PYI034 - no subclasses; Self needs Python 3.11
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def redeliver(self, report: object = None) -> None:
        """Send this process the signal it received, now that its handlers are restored.

        Args:
            report: Report of the world that the signal ended, attached to the exception that the
                handlers raise; see ``verdict.report_of``.
        """
        if self.received is None:
            return
        try:
            signal.raise_signal(self.received)
        except BaseException as stop:
            stop.__dict__["report"] = report
            raise

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            # A newly forked rank that hasn't set its own handlers yet.
            if number != signal.SIGINT:
                os._exit(128 + number)
            return
        self.received = number
        with suppress(BlockingIOError):  # full, so it is readable already
            os.write(self._write, b"\0")
