"""The launcher's hold on a small process that cleans up after it, also when it is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from distdemo.errors import UsageError
from distdemo.launcher import sweeper

PATIENCE = 1.0  # seconds that it gets to clean up


class Keeper:
    """Removes files and folders when it is closed, or when the launcher is gone.

    Args:
        paths: what to remove, if it is there then.

    Raises:
        UsageError: it can't be started.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a script and paths of our own
                [sys.executable, "-I", "-S", sweeper.__file__, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
        except OSError as error:
            raise _cannot_start(error) from error

    def watch(self, session: int) -> None:
        """From now on it kills this session's processes too, if the launcher does not end them."""
        if self._process.stdin is not None:
            with suppress(OSError):  # somebody has killed it
                os.write(self._process.stdin.fileno(), f"{session}\n".encode())

    def descriptors(self) -> tuple[int, ...]:
        """What other processes have to close, or it would wait for their end too."""
        stdin = self._process.stdin
        return () if stdin is None or stdin.closed else (stdin.fileno(),)

    def close(self, *, ended: bool = True) -> bool:
        """Come back when all is removed; False: it could not, as somebody has killed or stopped it.

        Args:
            ended: the session has ended; else its processes are killed first.
        """
        with suppress(OSError, subprocess.TimeoutExpired):  # somebody has killed or stopped it
            self._process.communicate(b"." if ended else b"!", timeout=PATIENCE)
        done = self._process.poll() == 0
        self._process.kill()
        self._process.wait()
        return done


def _cannot_start(error: OSError) -> UsageError:
    return UsageError(
        "The small process that cleans up after a world can't be started.",
        f"{error}.",
        "Look at the limits of processes and open files (ulimit -u, ulimit -n), and at memory.",
    )
