"""Forkserver preload: remove the folder of the forkserver's socket after its program is killed.

The program creates that folder and removes it when it exits, unless it is killed. The forkserver
exits shortly after the program, when the pipe between them closes, and removes the folder then; it
also notices a program that was killed during this import.
"""

from __future__ import annotations

import atexit
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

_program = int(os.environ.pop("_DISTDEMO_LAUNCHER", "0")) or os.getppid()


def _own_socket() -> Path | None:
    """Return the Unix socket that this process listens on, or None."""
    descriptors = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    for fd in map(int, descriptors):
        with suppress(OSError):  # closed in the meantime
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.socket(fileno=os.dup(fd)) as own:
                    listens = own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    name = own.getsockname()
                if listens and isinstance(name, str) and name.startswith("/"):
                    return Path(name)
    return None


def _remove(path: Path) -> None:
    """Remove the socket and its empty folder if the program has exited; then exit."""
    until = time.monotonic() + 0.5  # the program's pipe closes shortly before it exits
    while os.getppid() == _program and time.monotonic() < until:
        time.sleep(0.01)
    if os.getppid() != _program:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        os._exit(0)  # finalizing the interpreter with torch loaded takes seconds


_socket = _own_socket()
if _socket is not None:
    atexit.register(_remove, _socket)

import distdemo.launcher.rank_process  # noqa: E402, F401 - imported once, for all ranks
