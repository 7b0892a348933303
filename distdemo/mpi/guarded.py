"""Calls one at a time, for an MPI library that does not take them from several threads at once."""

from __future__ import annotations

import threading
from typing import Any

from mpi4py import MPI


class Guarded:
    """A communicator or a request whose every call takes a lock, and never waits inside.

    Args:
        thing: the real one.
        lock: one for the whole process.
    """

    def __init__(self, thing: Any, lock: threading.RLock) -> None:  # noqa: ANN401 - stands for either, by all their names
        self._thing = thing
        self._lock = lock

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the real one has
        found = getattr(self._thing, name)
        if not callable(found):
            return found

        def locked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with self._lock:
                result = found(*args, **kwargs)
            return Guarded(result, self._lock) if isinstance(result, MPI.Request) else result

        return locked
