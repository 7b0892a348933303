"""What Python does when a program has ended; a rank's process leaves without it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util


@contextmanager
def to_the_end() -> Iterator[None]:
    """After the block wait for its threads, and call its exit functions.

    After a failure, which must be known first, as its threads may wait for ever, the exit functions
    are called when the process ends: by multiprocessing, within the time that any rank gets.
    """
    try:
        yield
    except SystemExit as end:
        if end.code not in (None, 0):
            _finish_later()
            raise
    except BaseException:
        _finish_later()
        raise
    _finish()


def _finish() -> None:
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - joins threads, and lets executors' threads go
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing itself does


def _finish_later() -> None:
    util.Finalize(None, atexit._run_exitfuncs, exitpriority=1)  # noqa: SLF001 - as above
