"""The files that a command writes at its end: whole or not at all, and never in vain."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distdemo.errors import DistdemoError

Content = str | bytes


def write_made(flag: str, path: Path | None, made: Callable[[str], Content]) -> None:
    """Make what a file's ending stands for, and write it. By now there is a result to lose.

    Args:
        flag: that named the file.
        path: None: it was not given, and nothing happens.
        made: makes the content for an ending without its dot.

    Raises:
        DistdemoError: it could not be made, for whatever reason, or not be written.
    """
    if path is None:
        return
    try:
        content = made(path.suffix.lower().removeprefix("."))
    except DistdemoError:
        raise
    except Exception as error:
        raise _unmade(flag, path, error) from error
    write_file(flag, path, content)


def write_result(flag: str, path: Path, make: Callable[[], Content]) -> None:
    """Make the content of a file and write it. By now there is a result to lose.

    Args:
        flag: that named the file.
        path: found to be writable before anything ran.
        make: makes the content.

    Raises:
        DistdemoError: it could not be made, for whatever reason, or not be written.
    """
    write_made(flag, path, lambda _: make())


def write_file(flag: str, path: Path, content: Content) -> None:
    """Write what ``files.writable`` found to be possible.

    What was in a file before stays until all of the new content is on its way to the disk.

    Raises:
        DistdemoError: it no longer is possible.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if not _replaced(path, data):
            path.write_bytes(data)
    except OSError as error:
        raise DistdemoError(
            f"{flag} {path}: that could not be written.", f"{error.strerror}.", "Try another file."
        ) from error


def _replaced(path: Path, data: bytes) -> bool:
    """Write beside the file and put it in its place; False: that is not possible for this one.

    Raises:
        OSError: the disk is full, say; the file is as it was.
    """
    if not _replaceable(path):
        return False
    target = Path(os.path.realpath(path))  # a link stays one
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    beside = target.with_name(f".distdemo-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        file = beside.open("xb")
    except PermissionError:  # a folder that takes no new file may have one that can be written
        return False
    with _removed_unless_moved(beside):
        with file:
            file.write(data)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(target)
    return True


def _replaceable(path: Path) -> bool:
    """Whether another file may take its place: it is an ordinary one with this one name, and ours.

    A pipe, a device or an open file (``/dev/stdout``, ``/dev/fd/3``) has somebody at its end.
    """
    if os.path.realpath(path.parent).startswith("/proc/"):
        return False
    if path.is_symlink() and str(path.readlink()).startswith("/proc/"):
        return False
    if not path.exists():
        return True
    found = path.stat()
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()


@contextmanager
def _removed_unless_moved(path: Path) -> Iterator[None]:
    """Leave nothing behind where the block does not come to its end."""
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _unmade(flag: str, path: Path, error: Exception) -> DistdemoError:
    """What makes the content did not; a release of its library may be to blame."""
    reason = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return DistdemoError(
            f"{flag} {path}: what draws it can't be loaded.",
            reason,
            "Install it anew: pip install 'distdemo[plot]'.",
        )
    return DistdemoError(
        f"{flag} {path}: that could not be made.",
        f"{type(error).__name__}: {reason or 'it gives no reason'}",
        "All the rest is there. Try a file with another ending.",
    )
