"""The launcher's hold on a small process that cleans up after it, also when it is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from distdemo.launchers.wires import sweeper

PATIENCE = 1.0  # seconds that it gets to clean up


class Keeper:
    """Removes files and folders when it is closed, or when the launcher is gone.

    Args:
        paths: what to remove, if it is there then.
        session: the processes to kill if the launcher could not end them; 0: none.
    """

    def __init__(self, paths: Sequence[str], session: int = 0) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a script and paths of our own
            [sys.executable, "-I", "-S", sweeper.__file__, str(session), *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def descriptors(self) -> tuple[int, ...]:
        """What other processes have to close, or it would wait for their end too."""
        stdin = self._process.stdin
        return () if stdin is None or stdin.closed else (stdin.fileno(),)

    def close(self) -> None:
        """The session has ended: come back when the rest is removed."""
        with suppress(OSError, subprocess.TimeoutExpired):  # somebody has killed or stopped it
            self._process.communicate(b".", timeout=PATIENCE)
        self._process.kill()
        self._process.wait()
