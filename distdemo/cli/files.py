"""Write result files completely or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
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
    """Return the reason why a file can't be written, or an empty string. Changes nothing.

    Follows the steps of `write_result`: links, a new file in the same folder, and its new name.
    """
    from tempfile import TemporaryFile

    try:
        if path.is_dir():
            return "It is a folder."
        target = _target(path)
        if target is None:
            return ""  # opening a pipe has an effect
        folder = target.parent
        if not folder.is_dir():
            return f"There is no folder {folder}."
        owner = None
        with suppress(FileNotFoundError):
            owner = target.stat().st_uid
            if not os.access(target, os.W_OK):
                return "Permission denied."
        try:
            with TemporaryFile(dir=folder):
                pass
        except PermissionError:
            return f"No file can be created in {folder}." if owner is None else ""
        shared = folder.stat()
        may_replace = os.geteuid() in (0, owner, shared.st_uid)
        if owner is not None and shared.st_mode & stat.S_ISVTX and not may_replace:
            return f"It belongs to another user, and {folder} is sticky: only they can replace it."
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

    Files in a folder where no new file can be created are written directly, too.
    """
    target = _target(path)
    if target is None:
        _write_directly(path, parts)
        return
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    beside = target.with_name(f".distdemo-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        file = beside.open("xb")
    except PermissionError:
        _write_directly(path, parts)
        return
    try:
        with file:
            file.writelines(parts)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _write_directly(path: Path, parts: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(parts)
