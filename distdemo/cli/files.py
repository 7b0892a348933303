"""The files that a command will write (``writing``): refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from distdemo.errors import UsageError


def writable(flag: str, text: str | None, example: str) -> Path | None:
    """A file that can be written, found out before anything runs.

    Args:
        flag: that names it.
        text: its value; None: it was not given.
        example: a name to try.

    Raises:
        UsageError: its folder doesn't exist, it is a folder itself, or nobody lets us.
    """
    if text is None:
        return None
    if text == "-":
        raise UsageError(
            f"{flag} -: standard output has the result.",
            "It takes a file.",
            f"Try {flag} {example}.",
        )
    path = Path(text)
    if path.exists() and not (path.is_file() or path.is_dir()):
        return path  # a pipe or a device: opening it would already say something to its reader
    why = _why_unwritable(path)
    if why:
        raise UsageError(f"{flag} {text}: that can't be written.", why, f"Try {flag} {example}.")
    return path


def check_named(flag: str, text: str | None, example: str) -> None:
    """Refuse the empty value, as an unset variable of a shell leaves it."""
    if text is not None and not text.strip():
        raise UsageError(
            f"{flag} '': that names nothing.", "Its value is empty.", f"Try {flag} {example}."
        )


def check_ending(flag: str, text: str, endings: Sequence[str], what: str) -> None:
    """Refuse a file whose ending says nothing, or what can't be made.

    Args:
        flag: that names it.
        text: its name.
        endings: that say something, with their dots.
        what: they say, in a few words.
    """
    if Path(text).suffix.lower() not in endings:
        stem = Path(text).stem.lstrip(".") or flag.lstrip("-")
        raise UsageError(
            f"{flag} {text}: its ending says no {what}.",
            f"It can be {', '.join(endings)}.",
            f"Try {flag} {stem}{endings[0]}.",
        )


def check_plot(text: str | None, endings: Sequence[str]) -> None:
    """Refuse a plot that is no picture by its ending."""
    if text is not None:
        check_ending("--plot", text, endings, "kind of picture that can be drawn")


def drawable(text: str | None) -> Path | None:
    """A plot that can be drawn and written; its library is looked for, not loaded.

    Raises:
        UsageError: there is none, or the file can't be written.
    """
    if text is not None and find_spec("matplotlib") is None:
        raise UsageError(
            f"--plot {text}: matplotlib is not installed.",
            "It draws the curves, and is not needed for anything else.",
            "Try: pip install 'distdemo[plot]'.",
        )
    return writable("--plot", text, "plot.png")


def check_distinct(files: Mapping[str, str | None], examples: Sequence[str]) -> None:
    """Refuse two flags that name the same file.

    Args:
        files: what each flag names; None: it was not given.
        examples: a name to try for each.
    """
    seen: dict[Path, str] = {}
    for flag, text in files.items():
        if text is None:
            continue
        other = seen.setdefault(Path(text).resolve(), flag)
        if other != flag:
            tried = [f"{each} {name}" for each, name in zip(files, examples, strict=True)]
            raise UsageError(
                f"{other} and {flag} both name {files[other]}.",
                "One would overwrite the other.",
                f"Give them two names: {' '.join(tried)}.",
            )


def _why_unwritable(path: Path) -> str:
    """Tried, for permissions alone don't tell; empty if it can be. Leaves all as it was."""
    if path.is_dir():
        return "It is a folder."
    if not path.parent.is_dir():
        return f"It has no folder {path.parent} to lie in."
    new = not (path.exists() or path.is_symlink())
    try:
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        return f"{error.strerror}."
    return ""
