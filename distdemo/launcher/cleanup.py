"""Script that cleans up at the end of its standard input: ``cleanup.py PATH...``.

Each line of the input is the id of a session, whose processes are killed. Then the paths are
removed. ``INODE:PATH`` is a file, or an empty folder, that is removed only if it has this inode:
others may have put something in its place. The script runs without ``site`` and imports almost
nothing, so that it is ready 10 ms after its start.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterable


def clean(sessions: Iterable[int], paths: Iterable[str]) -> None:
    """Kill the processes of these sessions, and remove these files and folders."""
    for session in sessions:
        try:
            os.killpg(session, signal.SIGKILL)
        except OSError:  # they have exited
            continue
    for path in paths:
        _remove(path)


def _remove(path: str) -> None:
    """Remove a file, or a folder and its contents, if it exists; see the module for inodes."""
    inode, _, rest = ("", "", path) if path.startswith("/") else path.partition(":")
    try:
        if inode and os.lstat(rest).st_ino != int(inode):
            return
    except OSError:
        return
    path = rest
    for remove in (os.unlink, os.rmdir):
        try:
            remove(path)
        except OSError:
            continue
        return
    if os.path.isdir(path) and not inode:
        import shutil

        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    clean(map(int, sys.stdin.read().split()), sys.argv[1:])
