"""Whether this process ends in failure, which Python does not tell what runs at its exit.

An exception that nobody caught is in ``sys.last_type``. But ``sys.exit(3)`` leaves no trace there,
and other ranks may then wait in an op for the one that leaves.
"""

from __future__ import annotations

import sys
import threading
from functools import wraps
from typing import NoReturn


class _Said:
    failure = False
    heard = False


def listen_to_exits() -> None:
    """Take note, from now on, of what ``sys.exit`` is called with; it does what it did."""
    if _Said.heard:
        return
    _Said.heard = True
    original = sys.exit

    @wraps(original)
    def leave(status: object = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends a thread
            _Said.failure = status is not None and status != 0  # a text counts as 1
        original(status)  # type: ignore[arg-type]  # typed as what is of use, takes anything

    sys.exit = leave


def crashed() -> bool:
    """Whether an exception that nobody caught ends the process."""
    return getattr(sys, "last_type", None) is not None


def failed() -> bool:
    """Whether the program ends itself with an exit status other than 0."""
    return _Said.failure
