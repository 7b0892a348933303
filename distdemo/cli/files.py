"""Write result files completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
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
        content = content.encode() if isinstance(content, str) else content
        _write(path, [content] if isinstance(content, bytes) else content)
    except OSError as error:
        raise DistdemoError(
            f"{flag} {path}: it could not be written.", f"{error.strerror}.", "Try another file."
        ) from error


def why_unwritable(path: Path) -> str:
    """Return the reason why a file can't be written, or an empty string. Changes nothing."""
    try:
        if path.is_dir():
            return "It is a folder."
        target = _target(path)
        if target is None:
            return ""  # opening a pipe has an effect
        if not target.parent.is_dir():
            return f"There is no folder {target.parent}."
        if target.exists():
            return "" if os.access(target, os.W_OK) else "Permission denied."
        if not os.access(target.parent, os.W_OK | os.X_OK):
            return f"No file can be created in {target.parent}."
    except OSError as error:
        return f"{error.strerror}."
    return ""


def _target(path: Path) -> Path | None:
    """Return the file that a path leads to through links; None if it must be written directly.

    That is a pipe, a device or an open file (``/dev/fd/3``).
    """
    if str(path.parent) == "/dev" or str(path.parent.resolve()).startswith("/proc/"):
        return None
    target = Path(os.path.realpath(path))
    return target if target.is_file() or not target.exists() else None


def _write(path: Path, parts: Iterable[bytes]) -> None:
    """Write to a temporary file in the same folder, then rename it.

    Where that can't be done, the file is written directly: a pipe, or a file in a folder of
    someone else.
    """
    target = _target(path)
    if target is None or not os.access(target.parent, os.W_OK):
        with path.open("wb") as file:
            file.writelines(parts)
        return
    beside = target.with_name(f".distdemo-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with beside.open("xb") as file:
            file.writelines(parts)
        if target.exists():
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
