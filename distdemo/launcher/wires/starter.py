"""The process of mpiexec: its environment, its last words, and its end with all that it started."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence

from distdemo.errors import UsageError
from distdemo.launcher.keeper import Keeper
from distdemo.launcher.records import MpiStart
from distdemo.launcher.sweeper import kill_session
from distdemo.launcher.wires.contract import STRANGE

GRACE = 0.5  # seconds that mpiexec gets to end when its processes have
KEPT = 2048  # bytes of its last words
FOLDER = "@"
"""In a value of ``MpiStart.environment``: the world's private folder."""
_SEGMENT = 24 << 20  # bytes a rank of what Open MPI shares, with some to spare
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the system's folder in memory, for what ranks share
_ENGINES = (*STRANGE, "SLURM_", "PBS_", "LSB_", "PRTE_LAUNCHED", "HYDRA_")
"""Variables that would have mpiexec start processes elsewhere, or take itself for a rank."""


class Starter:
    """One run of mpiexec, in a session of its own.

    Args:
        mpi_start: the mpiexec, and what it needs.
        arguments: how many processes of what it starts.
        folder: the world's private one.
        keeper: removes the folder at the end, and kills mpiexec if this process is killed.

    Attributes:
        environment: what it was given.
        settings: the part of it that ranks need too.
        over: whether it and all that it started have ended.
        pid: its process id, which is its session's id too.

    Raises:
        UsageError: it can't be run.
    """

    def __init__(
        self, mpi_start: MpiStart, arguments: Sequence[str], folder: str, keeper: Keeper
    ) -> None:
        self._keeper = keeper
        self.settings = {
            name: value.replace(FOLDER, folder) for name, value in mpi_start.environment
        }
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(_ENGINES)},
            **self.settings,
            "TMPDIR": folder,
        }
        self.over = False
        self._said = bytearray()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the mpiexec of the MPI library
                [*mpi_start.command, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise _cannot_run(mpi_start, error) from error
        self.pid = self._process.pid
        keeper.watch(self.pid)
        os.set_blocking(self.fileno(), False)

    def fileno(self) -> int:
        """Where its words come from."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        return self._process.stdout.fileno()

    def hear(self) -> bool:
        """Take what it said; False when there will be no more."""
        try:
            data = os.read(self.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        self.over = not data
        self._said += data
        del self._said[:-KEPT]
        return not self.over

    def words(self) -> str:
        """The last that it said, in one line, without the frames that it draws around it."""
        lines = self._said.decode(errors="replace").splitlines()
        return " ".join(line.strip() for line in lines if line.strip(" -=*"))

    def descriptors(self) -> tuple[int, ...]:
        """What a forked rank finds open and must close."""
        return self.fileno(), *self._keeper.descriptors()

    def close(self) -> None:
        """See it end, or end it, with every process of its session; then remove the folder."""
        until = time.monotonic() + GRACE
        watch = select.poll()
        watch.register(self.fileno(), select.POLLIN | select.POLLHUP)
        while not self.over and (left := until - time.monotonic()) > 0:
            if watch.poll(left * 1000):
                self.hear()
        kill_session(self.pid)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._keeper.close()


def private_folder(ranks: int) -> str:
    """A new folder of mode 0700, in memory if all ranks' shared memory fits there.

    Raises:
        UsageError: there is no place for it.
    """
    try:
        room = shutil.disk_usage(_SHARED_MEMORY).free >= ranks * _SEGMENT
        room = room and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    except OSError:  # not on this system
        room = False
    try:
        return tempfile.mkdtemp(prefix="distdemo-", dir=_SHARED_MEMORY if room else None)
    except OSError as error:
        raise UsageError(
            "mpiexec needs a private folder, and none could be made.",
            str(error),
            "Set TMPDIR to a directory that you can write to.",
        ) from error


def _cannot_run(mpi_start: MpiStart, error: OSError) -> UsageError:
    return UsageError(
        f"{mpi_start.command[0]} can't be run.",
        str(error),
        "Install the MPI anew, or take the one that comes with pip install 'distdemo[mpi]'.",
    )
