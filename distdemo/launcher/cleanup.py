"""A script: wait for the end of standard input, then clean up: ``cleanup.py PATH...``.

A line of the input is the id of a session, whose processes it kills, unless a ``.`` said that they
have ended; ``!`` says that they have not. Then it removes the paths.

Runs without ``site`` and imports next to nothing, so that it is there some 10 ms after its start.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # typing takes its time to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def kill_session(session: int) -> None:
    """Kill every process of a session; where the system does not list them, its first group."""
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
        _quietly(os.killpg, session, signal.SIGKILL)
    for name in names:
        if name.isdigit() and _quietly(os.getsid, int(name)) == session:
            _quietly(os.kill, int(name), signal.SIGKILL)


def remove(path: str) -> None:
    """Remove a file, or a folder with all that is in it."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            _quietly(os.unlink, f"{folder}/{name}")
        for name in folders:
            inner = f"{folder}/{name}"
            _quietly(os.unlink if os.path.islink(inner) else os.rmdir, inner)  # noqa: PTH114 - pathlib takes its time to import
        _quietly(os.rmdir, folder)
    _quietly(os.unlink, path)


def told() -> str:
    """What the launcher said until it was gone, or until the sign that it has no more to say."""
    said = b""
    while not said.endswith((b".", b"!")):
        part = os.read(0, 64)
        if not part:
            break
        said += part
    return said.decode().removesuffix("!")


def _quietly(call: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - what calls return
    """What the call returns; None if what it asks for is gone, or was never there."""
    try:
        return call(*args)
    except OSError:
        return None


if __name__ == "__main__":
    said = told()
    if not said.endswith("."):
        for line in said.splitlines():
            kill_session(int(line))
    for path in sys.argv[1:]:
        remove(path)
