"""What a rank says last: the value that it returned, the status it left with, or its error."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distdemo.launcher.backend_error import is_backends, missing_ranks
from distdemo.launcher.channel import dumps
from distdemo.launcher.excerpt import excerpt

if TYPE_CHECKING:
    from distdemo.launcher.channel import Sender


LONGEST = 200_000  # characters of a message or a traceback


def report_value(sender: Sender, value: Any) -> None:  # noqa: ANN401 - the user's value
    """Say that the function returned this; a value that can't be pickled is the rank's error."""
    try:
        sender.send("returned", time.monotonic(), dumps(value))
    except Exception as error:  # noqa: BLE001 - pickling a user's object may raise anything
        problem = TypeError(f"the value that it returned can't be sent back: {error}")
        report_error(sender, problem)


def report_exit(sender: Sender, error: SystemExit) -> None:
    """``sys.exit()`` in the function: like returning None, unless it carries a status."""
    if error.code in (None, 0):
        sender.send("returned", time.monotonic(), dumps(None))
        return
    code = error.code & 0xFF if isinstance(error.code, int) else 1  # as the system takes it
    if code == 0:
        sender.send("returned", time.monotonic(), dumps(None))
        return
    note = "" if isinstance(error.code, int) else _text(error.code)
    sender.send("exited", time.monotonic(), code, note)


def report_error(sender: Sender, error: BaseException) -> None:
    """Say what it raised, whether that is the backend's, and whom it names."""
    sender.send(
        "raised",
        time.monotonic(),
        type(error).__qualname__,
        _text(error),
        _said(_user_traceback, error),
        is_backends(error),
        missing_ranks(error),
        _said(excerpt, error),
    )
    flush()


def _text(thing: object) -> str:
    try:
        return _cut(str(thing))
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        return "(its text can't be shown)"


def _said(tell: Callable[[BaseException], str], error: BaseException) -> str:
    """What can be told of an error; at least its type and text, whatever they are."""
    try:
        return _cut(tell(error))
    except BaseException:  # noqa: BLE001 - as above; and chains of errors may be too long
        return f"{type(error).__qualname__}: {_text(error)}\n"


def _cut(text: str) -> str:
    """The text, or its beginning and its end: a message may hold a whole data set."""
    if len(text) <= LONGEST:
        return text
    half, left_out = LONGEST // 2, len(text) - LONGEST
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[-half:]}"


def _user_traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on, or all of it if the fault is in a launcher."""
    trace = error.__traceback__
    while trace is not None and _is_launcher(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)


def _is_launcher(file: str) -> bool:
    return os.path.dirname(file) == os.path.dirname(__file__)  # noqa: PTH120 - two strings, no path


def flush() -> None:
    """Write out what was printed: the process may end without doing so."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it is gone
            stream.flush()
