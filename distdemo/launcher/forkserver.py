"""Preloaded into the forkserver: it removes the folder of its socket when its program is gone.

Python makes that folder in the program's name and removes it when the program exits; a program
that is killed can't. The forkserver outlives it by a moment, because the pipe between them closes;
a program that is killed while this is still being imported is gone when it is done.
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
    """The Unix socket that this process listens on; None if it has none."""
    descriptors = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []  # noqa: PTH112 - no Path is needed
    for fd in map(int, descriptors):
        with suppress(OSError):  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.socket(fileno=os.dup(fd)) as found:
                    listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    name = found.getsockname()
                if listens and isinstance(name, str) and name.startswith("/"):
                    return Path(name)
    return None


def _remove(path: Path) -> None:
    """Remove the socket, and its folder if that is empty and the program is gone."""
    until = time.monotonic() + 0.5  # its pipe closes a moment before the kernel lets it go
    while os.getppid() == _program and time.monotonic() < until:
        time.sleep(0.01)
    if os.getppid() != _program:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        os._exit(0)  # taking the interpreter apart, with torch loaded, would take seconds more


_socket = _own_socket()
if _socket is not None:
    atexit.register(_remove, _socket)

import distdemo.launcher.api  # noqa: E402
import distdemo.launcher.rank  # noqa: E402, F401 - imported once, for all ranks that will be forked
