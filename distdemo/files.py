"""Open files that others may have planted, with limits on size and memory; find the examples."""

from __future__ import annotations

import errno
import io
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_BYTES = 64 << 20
"""Size limit of a file that is read whole."""
MEMORY_BYTES = 400 << 20
"""Memory that decoding such a file may take."""


def examples() -> Path:
    """Return the folder of the examples, which a wheel has within the package."""
    package = Path(__file__).parent
    installed = package / "examples"
    return installed if installed.exists() else package.parent / "examples"


def example(name: str) -> str:
    """Return the text of one of the examples."""
    return (examples() / name).read_text(encoding="utf-8")


def read_file(path: Path | str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: The file can't be opened or read, or has no end.
        ValueError: It is not a regular file, or is too large.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > max_bytes else file.read(max_bytes + 1)
    if size > max_bytes or len(data) > max_bytes:  # it may grow, and /proc's have no size
        raise ValueError(f"It has {max(size, len(data)):,} bytes; the limit is {max_bytes:,}")
    return data


def open_file(path: Path | str) -> BinaryIO:
    """Open a regular file for reading. The check is on what was opened, not on the name.

    Raises:
        OSError: It can't be opened.
        ValueError: It is a folder, a pipe, a device or a socket.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError("It is not a regular file")
    return io.BufferedReader(_File(fd))


class _File(io.FileIO):
    """File that is read without waiting."""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into the buffer; raise `BlockingIOError` instead of returning None."""
        count = super().readinto(buffer)
        if count is None:  # /proc/kmsg, which is a regular file
            raise BlockingIOError(errno.EAGAIN, "It has no end: a reader waits for more")
        return count


def create_file(path: Path | str) -> int:
    """Open an empty file for writing in a folder where others may have planted something.

    A file that exists must be a regular file of this user, with no other name; it is emptied. The
    check is on what was opened, not on the name.

    Returns:
        Its descriptor.

    Raises:
        OSError: It can't be opened, or is not such a file.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fd = os.open(path, flags)
    status = os.fstat(fd)
    is_own = status.st_uid == os.geteuid() and status.st_nlink == 1
    if not (stat.S_ISREG(status.st_mode) and is_own):
        os.close(fd)
        raise PermissionError(errno.EPERM, "Not a regular file of yours with one name", str(path))
    os.ftruncate(fd, 0)
    return fd


@contextmanager
def limited_memory(more: int = MEMORY_BYTES) -> Iterator[None]:
    """Raise `MemoryError` if the block needs more than this many bytes of memory. Linux only."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_memory(more, hard=before[1])
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def limit_memory(more: int, hard: int | None = None) -> None:
    """Limit the additional memory that this process can allocate. Linux only.

    Args:
        more: Bytes in addition to what it uses now.
        hard: Hard limit to keep (setrlimit(2)); None sets it to the same value.
    """
    from distdemo.platform import system

    used = system.data_bytes()
    if used is None:
        return
    most = used + more
    highest = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if highest != resource.RLIM_INFINITY:
        most = min(most, highest)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most if hard is None else hard))
