"""The processes below the launcher: what ranks have started ends with the world, whatever happens.

A rank of a user program leads a session of its own, and all that it starts belongs to that session
unless it leaves it. A small process (``cleanup``) kills the sessions and removes files even if the
launcher is killed. What has left its session, as daemons do, becomes a child of the nearest
ancestor that asked for such orphans (prctl(2), PR_SET_CHILD_SUBREAPER; Linux alone): the launcher,
while these ranks run.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing import process
from pathlib import Path
from typing import Any

from distdemo.errors import UsageError
from distdemo.launcher import cleanup

PATIENCE = 1.0  # seconds for the cleaning up, and for orphans to end once they were killed
LEAST = 0.01  # of one core: who uses less is not at work, but wakes now and then
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
PDEATHSIG = 1  # PR_SET_PDEATHSIG


class Cleanup:
    """Removes files and folders when it is closed, or when the launcher is gone.

    Args:
        paths: what to remove, if it is there then.

    Raises:
        UsageError: its process can't be started.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = paths
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a script and paths of our own
                [sys.executable, "-I", "-S", cleanup.__file__, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
        except OSError as error:
            raise UsageError(
                "The small process that cleans up after a world can't be started.",
                f"{error}.",
                "Look at the limits of processes and open files (ulimit -u, -n), and at memory.",
            ) from error

    def watch(self, session: int) -> None:
        """From now on it kills this session's processes too, if the launcher does not end them."""
        if self._process.stdin is not None:
            with suppress(OSError):  # somebody has killed it
                os.write(self._process.stdin.fileno(), f"{session}\n".encode())

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What other processes have to close, or it would wait for their end too."""
        stdin = self._process.stdin
        return () if stdin is None or stdin.closed else (stdin.fileno(),)

    def close(self, *, ended: bool = True) -> bool:
        """Come back when all is removed; False: it could not, as somebody has killed or stopped it.

        Args:
            ended: the sessions have ended; else their processes are killed first.
        """
        with suppress(OSError, subprocess.TimeoutExpired):  # somebody has killed or stopped it
            self._process.communicate(b"." if ended else b"!", timeout=PATIENCE)
        done = self._process.poll() == 0
        self._process.kill()
        self._process.wait()
        for path in () if done else self._paths:
            cleanup.remove(path)
        return done


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a new private folder that is removed at the end, even if this process is killed.

    Args:
        prefix: Start of the folder's name.

    Raises:
        UsageError: The process that cleans up can't be started.
        OSError: The folder can't be made.
    """
    folder = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(6)}")
    with closing(Cleanup([str(folder)])):  # before the folder is there
        folder.mkdir(mode=0o700)
        yield folder


class ProcessTree:
    """All that the ranks of a user program start, from its making until ``end``.

    That includes the folder in which multiprocessing puts the sockets of DataLoader's workers.

    Raises:
        UsageError: the process that cleans up can't be started.
    """

    def __init__(self) -> None:
        # Ranks inherit this setting, and leave the folder to the process that made it.
        self._config: dict[str, Any] = vars(process.current_process())["_config"]
        self._folder = self._config.get("tempdir")
        folders = []
        with suppress(OSError):  # there is no place for one; who needs it will say so
            folders = [Path(tempfile.gettempdir(), f"pymp-{secrets.token_hex(4)}")]
        self._cleanup = Cleanup([*map(str, folders)])
        for folder in folders:
            with suppress(OSError):
                folder.mkdir(mode=0o700)
                self._config["tempdir"] = str(folder)
        self._sessions: list[int] = []
        self._before = set(children(os.getpid()))
        self._adopts = _adopt(1)
        self.descriptors = self._cleanup.descriptors

    def add(self, session: int) -> None:
        """A rank has been started; its session has the number of its process."""
        self._sessions.append(session)
        self._cleanup.watch(session)

    def end(self) -> None:
        """The ranks have ended: kill what they have left, in their sessions and outside."""
        self._config["tempdir"] = self._folder
        if not self._cleanup.close(ended=False):
            for session in self._sessions:
                cleanup.kill_session(session)
        if not self._adopts:
            return
        until = time.monotonic() + PATIENCE
        while (left := self._orphans()) and time.monotonic() < until:
            for pid in left:
                for each in (*_descendants(pid), pid):
                    with suppress(OSError):
                        os.kill(each, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        _adopt(0)

    def _orphans(self) -> list[int]:
        """Children that were not there before and that multiprocessing does not look after."""
        from multiprocessing import active_children, forkserver, resource_tracker

        known = self._before | {each.pid for each in active_children()}
        known.add(getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None))
        known.add(getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None))
        return [pid for pid in children(os.getpid()) if pid not in known]


def children(pid: int) -> list[int]:
    """The children of a process, those of all its threads; empty where the system does not tell."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield from _descendants(child)
        yield child


def die_with_parent(number: int = signal.SIGKILL) -> bool:
    """Have the kernel send this process a signal when the thread that started it exits.

    Args:
        number: The signal; 0 cancels an earlier request.

    Returns:
        True if the system can do that: Linux (prctl(2), PR_SET_PDEATHSIG).
    """
    return _prctl(PDEATHSIG, number)


def _adopt(on: int) -> bool:
    """Ask for orphans, or no more; whether the system can do that."""
    return _prctl(SUBREAPER, on)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


# ---------------------------------------------------------------------------------- who is at work


class Activity:
    """Whether the processes of some sessions are at work.

    A program of the user's own says nothing of its progress. What tells one that computes from one
    that waits forever is the time that it and its children use of the processor. The threads of
    gloo and NCCL don't count: they wake all the time while a rank waits in recv.

    Args:
        sessions: their numbers.
    """

    def __init__(self, sessions: Collection[int]) -> None:
        self._sessions = sessions
        self._looked, self._before = time.monotonic(), processor_seconds(sessions)

    def goes_on(self) -> bool:
        """Whether they have been at work since the last look; True where nobody tells.

        A thread that has ended since takes its time out of the sum, so less is work, too.
        """
        now, total = time.monotonic(), processor_seconds(self._sessions)
        passed, before = now - self._looked, self._before
        self._looked, self._before = now, total
        if total is None or before is None:
            return True
        return abs(total - before) > LEAST * passed


def processor_seconds(sessions: Collection[int]) -> float | None:
    """What the threads of these sessions have used of the processor, and their ended children.

    None where nobody tells. Source: proc_pid_stat(5).
    """
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    ticks = 0
    for name in names:
        with suppress(OSError, ValueError, IndexError):  # it ended while we looked
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) not in sessions:
                continue
            ticks += int(fields[13]) + int(fields[14])
            for task in Path(f"/proc/{name}/task").iterdir():
                called, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
                if not called.startswith(("gloo", "pt_gloo", "pt_nccl")):
                    ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
