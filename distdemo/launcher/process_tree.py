"""Kill every process that ranks have started when their world ends, however it ends.

Each rank of a user program leads a session, to which the processes that it starts belong unless
they leave it. A small process (``cleanup``) kills the sessions and removes files even if the
launcher is killed. Processes that have left their session, such as daemons, become children of the
launcher on Linux, where it adopts orphans while these ranks run. On other systems they stay.
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
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing import process
from pathlib import Path
from typing import Any

from distdemo.errors import UsageError
from distdemo.launcher import cleanup
from distdemo.platform import system
from distdemo.platform.portable import ProcessorTime, SharedFile

CLEANUP_TIMEOUT_S = 2.0  # for the cleanup process, and for killed orphans to exit
MIN_LOAD = 0.01  # of one core: ranks that use less together only wake now and then
MIN_SHARE = 0.05  # of one core, of a thread that never runs for long
MIN_RUN_S = 0.0005  # of the processor at once; a poll of a store takes 20 µs


class Cleanup:
    """Process that kills sessions and removes files when it is closed or the launcher exits.

    Args:
        paths: Absolute paths of files and folders to remove, if they exist then; ``INODE:PATH``
            only if it has this inode and, if it is a folder, is empty.

    Raises:
        UsageError: The process can't be started.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = paths
        self._sessions: list[int] = []
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a script and paths of our own
                [sys.executable, "-I", "-S", cleanup.__file__, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # out of Ctrl-C's reach
            )
        except OSError as error:
            raise UsageError(
                "The process that cleans up after a world can't be started.",
                f"{error}.",
                "Check the limits on processes and open files (ulimit -u, -n), and free memory.",
            ) from error

    def kill_later(self, session: int) -> None:
        """Also kill this session's processes."""
        self._sessions.append(session)
        if self._process.stdin is not None:
            with suppress(OSError):  # the process was killed
                os.write(self._process.stdin.fileno(), f"{session}\n".encode())

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that child processes must close: cleanup starts when all are closed."""
        stdin = self._process.stdin
        return () if stdin is None or stdin.closed else (stdin.fileno(),)

    def keep_files(self) -> None:
        """Remove no file: another process owns those of these names now."""
        self._paths = ()
        self._process.kill()

    def close(self) -> None:
        """Clean up now."""
        with suppress(OSError, subprocess.TimeoutExpired):  # the process was killed or stopped
            self._process.communicate(timeout=CLEANUP_TIMEOUT_S)
        if self._process.poll() != 0:
            self._process.kill()
            self._process.wait()
            cleanup.clean(self._sessions, self._paths)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a new private folder that is removed at the end, even if this process is killed.

    Args:
        prefix: Start of the folder's name.

    Raises:
        UsageError: It can't be created.
    """
    try:
        folder = Path(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(6)}")
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(
            "A temporary folder can't be created.",
            f"{error}.",
            "Set TMPDIR to a folder that you can write to.",
        ) from error
    with closing(Cleanup([str(folder)])):
        yield folder


@contextmanager
def shared_file(name: str) -> Iterator[SharedFile]:
    """Yield a file that processes of this user can map; nothing is left if this one is killed.

    Raises:
        UsageError: It can't be created.
    """
    try:
        file = system.shared_file(name)
    except OSError as error:
        raise UsageError(
            "Memory for all ranks can't be created.",
            f"{error}.",
            "Set TMPDIR to a folder that you can write to, and free memory and disk space.",
        ) from error
    with closing(file), ExitStack() as stack:
        if file.is_named:
            stack.enter_context(closing(Cleanup([file.path])))
        yield file


class ProcessTree:
    """Processes that the ranks of a user program start, from the constructor until ``end``.

    It also owns the folder in which multiprocessing puts the sockets of DataLoader's workers.

    Raises:
        UsageError: The cleanup process can't be started.
    """

    def __init__(self) -> None:
        # Ranks inherit this setting; only the process that created the folder removes it.
        self._config: dict[str, Any] = vars(process.current_process())["_config"]
        self._folder = self._config.get("tempdir")
        folders = []
        with suppress(OSError):  # no temporary directory: reported where one is needed
            folders = [Path(tempfile.gettempdir(), f"pymp-{secrets.token_hex(4)}")]
        self._cleanup = Cleanup([*map(str, folders)])
        for folder in folders:
            with suppress(OSError):
                folder.mkdir(mode=0o700)
                self._config["tempdir"] = str(folder)
        self._before = set(system.children(os.getpid()))
        system.adopt_orphans(adopts=True)
        self.descriptors = self._cleanup.descriptors

    def add(self, session: int) -> None:
        """Add the session of a rank that was started; its id is the rank's process id."""
        self._cleanup.kill_later(session)

    def end(self) -> None:
        """Kill the processes that the ranks left behind, in their sessions and outside."""
        self._config["tempdir"] = self._folder
        self._cleanup.close()
        until = time.monotonic() + CLEANUP_TIMEOUT_S
        while (left := self._orphans()) and time.monotonic() < until:
            for pid in left:
                for orphan in (*descendants(pid), pid):
                    with suppress(OSError):
                        os.kill(orphan, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        system.adopt_orphans(adopts=False)

    def _orphans(self) -> list[int]:
        """Return the new children that multiprocessing doesn't manage."""
        from multiprocessing import active_children, forkserver, resource_tracker

        known = self._before | {child.pid for child in active_children()}
        known.add(getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None))
        known.add(getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None))
        return [pid for pid in system.children(os.getpid()) if pid not in known]


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of a process and theirs, the youngest first."""
    for child in system.children(pid):
        yield from descendants(child)
        yield child


# ----------------------------------------------------------------------------------- processor use


class Activity:
    """Processor use of ranks and what they have started.

    A user's function doesn't report progress. The processor time of it and its children
    distinguishes a rank that computes from one that waits forever. A thread that waits may poll:
    it runs for microseconds, many times. So a thread counts if it keeps the processor for longer
    (`MIN_RUN_S`), however small its share is on a crowded machine, or if it uses a large share
    (`MIN_SHARE`). The threads of transports poll without a pause and never count; what they deliver
    wakes a thread that does.

    Args:
        ranks: Process ids of the ranks.
    """

    def __init__(self, ranks: Collection[int]) -> None:
        self._ranks = ranks
        self._measured_at = time.monotonic()
        self._before = processor_times(ranks)

    def is_active(self) -> bool:
        """Return True if the processor was used since the last call.

        The time of a thread that has ended counts as new: it did something.
        """
        before = self._before
        now = self._before = processor_times(self._ranks)
        passed = time.monotonic() - self._measured_at
        self._measured_at += passed
        used = sum(before[number].seconds for number in before.keys() - now.keys())
        for number, total in now.items():
            earlier = before.get(number, ProcessorTime(0.0, 0))
            seconds = total.seconds - earlier.seconds
            least = min(MIN_SHARE * passed, MIN_RUN_S * (total.runs - earlier.runs))
            used += seconds if seconds > least else 0.0
        return used > MIN_LOAD * passed


def processor_times(ranks: Collection[int]) -> dict[int, ProcessorTime]:
    """Return the processor times of ranks and their descendants; see `Platform`."""
    return system.processor_times({pid for rank in ranks for pid in (rank, *descendants(rank))})
