"""Write result files completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from distdemo.cli.contract import Content
from distdemo.errors import DistdemoError


def write_result(flag: str, path: Path, make: Callable[[], Content]) -> None:
    """Make the content of a file and write it.

    The old content stays until all of the new content has been written.

    Args:
        flag: Option that named the file.
        path: Path that was found to be writable before anything ran.
        make: Function that returns the content.

    Raises:
        DistdemoError: The content could not be made or written.
    """
    try:
        content = make()
    except DistdemoError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or "no reason given"
        hint = "Try a file with another suffix."
        if isinstance(error, ImportError):
            hint = "Install matplotlib: pip install 'distdemo[plot]'."
        what = f"{flag} {path}: it could not be made."
        raise DistdemoError(what, f"{type(error).__name__}: {reason}.", hint) from error
    try:
        _write(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise DistdemoError(
            f"{flag} {path}: it could not be written.", f"{error.strerror}.", "Try another file."
        ) from error


def _write(path: Path, data: bytes) -> None:
    """Write to a temporary file in the same folder, then rename it.

    Pipes, devices and open files (``/dev/fd/3``) are written directly, as are files in a folder
    where no new file can be created.
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
