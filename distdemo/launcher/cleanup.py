"""Script that cleans up at the end of its standard input: ``cleanup.py PATH...``.

Each line of the input is the id of a session, whose processes are killed. The resource trackers of
multiprocessing get a second to finish: they remove what killed processes leave, such as semaphores.
Then the paths are removed. ``INODE:PATH`` is a file, or an empty folder, that is removed only if it
has this inode: others may have put something in its place. The script runs without ``site`` and
imports almost nothing, so that it is ready 10 ms after its start.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

TRACKER = b"multiprocessing.resource_tracker"
TRACKER_TIMEOUT_S = 1.0


def clean(sessions: Collection[int], paths: Iterable[str]) -> None:
    """Kill the processes of these sessions, and remove these files and folders."""
    if any(map(_exists, sessions)):
        _let_trackers_finish(sessions)
    for session in sessions:
        try:
            os.killpg(session, signal.SIGKILL)
        except OSError:  # they have exited
            continue
    for path in paths:
        _remove(path)


def _exists(session: int) -> bool:
    """Return True if a session's first process group has a process."""
    try:
        os.killpg(session, 0)
    except OSError:
        return False
    return True


def _let_trackers_finish(sessions: Collection[int]) -> None:
    """Kill the processes of these sessions that a tracker waits for, and wait for the tracker."""
    until = time.monotonic() + TRACKER_TIMEOUT_S
    while time.monotonic() < until:
        commands = _commands(sessions)
        if not any(TRACKER in command for command in commands.values()):
            return
        for pid, command in commands.items():
            if TRACKER not in command:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:  # it has exited
                    continue
        time.sleep(0.005)


def _commands(sessions: Collection[int]) -> dict[int, bytes]:
    """Return the command lines of the sessions' living processes; Linux only."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            state, _, group = _start_of(f"/proc/{name}/stat").rpartition(b")")[2].split()[:3]
            if state not in b"ZX" and int(group) in sessions:
                found[int(name)] = _start_of(f"/proc/{name}/cmdline")
        except (OSError, ValueError):  # it has exited, or isn't a process
            continue
    return found


def _start_of(path: str) -> bytes:
    """Return the first 4 KiB of a file."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


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
    clean([int(word) for word in sys.stdin.read().split()], sys.argv[1:])
