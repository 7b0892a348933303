"""Preloaded into the forkserver: it removes the folder of its socket when its program is gone.

Python makes that folder in the program's name and removes it when the program exits; a program
that is killed can't. The forkserver outlives it by a moment, because the pipe between them closes.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import distdemo.launcher.api
import distdemo.launcher.rank  # noqa: F401 - imported once, for all ranks that will be forked


def _own_socket() -> Path | None:
    """The Unix socket that this process listens on; None if it has none."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # no socket, or closed meanwhile
            found = socket.socket(fileno=os.dup(fd))
            with found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                name = found.getsockname()
            if listens and isinstance(name, str) and name.startswith("/"):
                return Path(name)
    return None


def _remove(path: Path, program: int) -> None:
    """Remove the socket, and its folder if that is empty and the program is gone."""
    until = time.monotonic() + 0.5  # its pipe closes a moment before the kernel lets it go
    while os.getppid() == program and time.monotonic() < until:
        time.sleep(0.01)
    if os.getppid() != program:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        os._exit(0)  # taking the interpreter apart, with torch loaded, would take seconds more


_socket = _own_socket() if os.path.isdir("/proc/self/fd") else None  # noqa: PTH112 - no Path is needed
if _socket is not None:
    atexit.register(_remove, _socket, os.getppid())
