"""Write result files completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from distdemo.cli.contract import FileContent
from distdemo.errors import DistdemoError


def write_result(flag: str, path: Path, make: Callable[[], FileContent]) -> None:
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
        _write(path, make())
    except DistdemoError:
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}.".split())
        what = f"{flag} {path}: it could not be written."
        raise DistdemoError(what, why, "Try another file, or another suffix.") from error


def why_unwritable(path: Path) -> str:
    """Return the reason why a file can't be written, or an empty string. Changes nothing."""
    exists = True
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            return "It is a folder."
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except OSError as error:
        return f"{error.strerror}."
    folder = Path(os.path.realpath(path)).parent
    if not (exists or folder.is_dir()):
        return f"There is no folder {folder}."
    return "" if os.access(path if exists else folder, os.W_OK) else "Permission denied."


def why_no_folder(path: Path) -> str:
    """Return the reason why a folder can neither be created nor written to, or an empty string."""
    try:
        if path.is_dir():
            return why_unwritable(path / "file")
        if path.exists():
            return "It is a file."
    except OSError as error:
        return f"{error.strerror}."
    return why_unwritable(path)


def _write(path: Path, content: FileContent) -> None:
    """Write to a temporary file in the same folder, then rename it.

    A pipe, an open file such as ``/dev/stdout``, or a file in a folder of someone else is written
    directly.
    """
    data = content.encode() if isinstance(content, str) else content
    parts = [data] if isinstance(data, bytes) else data
    target = Path(os.path.realpath(path))
    mode = target.stat().st_mode if target.exists() else None
    is_special = path.parts[1:2] == ("dev",) or not stat.S_ISREG(mode or stat.S_IFREG)
    if is_special or not os.access(target.parent, os.W_OK):
        with path.open("wb") as file:
            file.writelines(parts)
        return
    beside = target.with_name(f".distdemo-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with beside.open("xb") as file:
            file.writelines(parts)
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
