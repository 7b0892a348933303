"""Where the ranks of one machine find each other: a FileStore that nobody else can reach.

On Linux its file lives in memory only (``memfd_create``) and is reached through the launcher's
entry in /proc, which the kernel opens to this user alone. It has no name, needs no temporary
directory, and is gone with the last process that holds it, however that process ended. Elsewhere
it is a file in a private directory (mode 0700) that is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from distdemo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank

from contextlib import contextmanager


class Rendezvous(Protocol):
    """Where the ranks of a world find each other."""

    @property
    def directory(self) -> str | None:
        """What has to be removed with it, if there is something."""

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """Collective: the store that all ranks share; it waits so long for a key."""

    def leave(self) -> None:
        """Collective: what ranks that all went well do together before they end."""


@dataclass(frozen=True, slots=True)
class FileRendezvous:
    """The path of the FileStore, and the directory to remove with it, if there is one."""

    path: str
    directory: str | None = None

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """The FileStore at this path."""
        from torch._C._distributed_c10d import FileStore

        found = FileStore(self.path, rank.world_size)
        found.set_timeout(patience)
        return found

    def leave(self) -> None:
        """Nothing: the launcher looks after the file."""


@contextmanager
def rendezvous() -> Iterator[FileRendezvous]:
    """A store file for one world, gone when the block ends.

    Raises:
        UsageError: no private directory can be made where one is needed.
    """
    fd = _memory_file()
    if fd is None:
        with private_directory() as place:
            yield place
        return
    try:
        yield FileRendezvous(f"/proc/{os.getpid()}/fd/{fd}")
    finally:
        os.close(fd)


@contextmanager
def private_directory() -> Iterator[FileRendezvous]:
    """A store file in a new directory of mode 0700, removed when the block ends.

    Raises:
        UsageError: the temporary directory is full, read-only or missing.
    """
    try:
        directory = tempfile.mkdtemp(prefix="distdemo-")
    except OSError as error:
        raise UsageError(
            "The ranks have no place to meet: no private directory could be made.",
            str(error),
            "Set TMPDIR to a directory that you can write to.",
        ) from error
    try:
        yield FileRendezvous(os.path.join(directory, "store"), directory)  # noqa: PTH118 - a str for torch
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _memory_file() -> int | None:
    """A nameless file in memory; None where the system has none or hides /proc."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        fd = os.memfd_create("distdemo-store", os.MFD_CLOEXEC)
    except OSError:
        return None
    if os.access(f"/proc/{os.getpid()}/fd/{fd}", os.R_OK | os.W_OK):
        return fd
    os.close(fd)
    return None
