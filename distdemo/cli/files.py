"""The files that a command writes at its end: whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from distdemo.cli.contract import Content
from distdemo.errors import DistdemoError


def write_result(flag: str, path: Path, make: Callable[[], Content]) -> None:
    """Make the content of a file and write it. By now there is a result to lose.

    What was in the file before stays until all of the new content is on its way to the disk.

    Args:
        flag: that named the file.
        path: found to be writable before anything ran.
        make: makes the content.

    Raises:
        DistdemoError: it could not be made, for whatever reason, or not be written.
    """
    try:
        content = make()
    except DistdemoError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or "it gives no reason"
        hint = "Try a file with another ending."
        if isinstance(error, ImportError):
            hint = "Install what draws it: pip install 'distdemo[plot]'."
        what = f"{flag} {path}: it could not be made."
        raise DistdemoError(what, f"{type(error).__name__}: {reason}.", hint) from error
    try:
        _write(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise DistdemoError(
            f"{flag} {path}: it could not be written.", f"{error.strerror}.", "Try another file."
        ) from error


def _write(path: Path, data: bytes) -> None:
    """Write beside the file and put it in its place.

    A pipe, a device or an open file (``/dev/fd/3``) has somebody at its end, and is written to. So
    is a file in a folder that takes no new one.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    special = target.exists() and not target.is_file()
    through = str(path).startswith("/dev/") or str(path.parent.resolve()).startswith("/proc/")
    if special or through:
        path.write_bytes(data)
        return
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    beside = target.with_name(f".distdemo-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        file = beside.open("xb")
    except PermissionError:
        path.write_bytes(data)
        return
    try:
        with file:
            file.write(data)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
