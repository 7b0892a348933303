"""Preloaded into the forkserver: it removes the folder of its socket when its program is gone.

Python makes that folder in the program's name and removes it when the program exits; a program
that is killed can't. The forkserver outlives it by a moment, because the pipe between them closes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import distdemo.launchers.api
import distdemo.launchers.rank  # noqa: F401 - imported once, for all ranks that will be forked


def _listening_folder() -> Path | None:
    """The folder of the Unix socket that this process listens on; None if it has none."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # no socket, or closed meanwhile
            found = socket.socket(fileno=os.dup(fd))
            with found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                name = found.getsockname()
            if listens and isinstance(name, str) and name.startswith("/"):
                return Path(name).parent
    return None


def _remove(folder: Path) -> None:
    """Remove the folder if it is one that multiprocessing makes."""
    if folder.name.startswith("pymp-"):
        shutil.rmtree(folder, ignore_errors=True)


_folder = _listening_folder() if os.path.isdir("/proc/self/fd") else None  # noqa: PTH112 - no Path is needed
if _folder is not None:
    atexit.register(_remove, _folder)
