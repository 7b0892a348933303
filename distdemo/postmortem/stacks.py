"""Find the user's line in a stack, and read the output of ``py-spy dump``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distdemo.calls.records import SourceLine
from distdemo.postmortem.content import lines

MAX_CALLERS = 3  # lines that are kept around a source line
HEAD = re.compile(r"^Process \d+: ", re.MULTILINE)
_THREAD = re.compile(r'^Thread (?:0x[\da-fA-F]+|\d+) \([^)]*\)(?:: "([^"]*)")?')
_PLACE = re.compile(r"(.+?)(?::(\d{1,9}))?")
_TORCH = re.compile(r"(?:^|(?:site|dist)-packages/|/pytorch/)(?:torch|torchcomms)/")
_PACKAGE = re.compile(r"(?:site|dist)-packages/")
_LIBRARY = re.compile(r"^<(?!cell )|/lib(?:64)?/python3[^/]*/|^(?:threading|runpy|selectors)\.py$")
_OURS = re.compile(r"(?:^|/)distdemo/")


def source_line(frames: Iterable[tuple[str, int, str]]) -> tuple[SourceLine, str]:
    """Return the user's line of a stack, and the name of the torch function that it called.

    Args:
        frames: File, line and function of each frame, innermost first.
    """
    packages: list[SourceLine] = []
    users: list[SourceLine] = []
    torch: SourceLine | None = None
    for file, line, function in frames:
        frame = SourceLine(file, line, function)
        if _TORCH.search(file):
            is_wrapper = function.rpartition(".")[2] == "wrapper"
            if not (users or packages) and "distributed" in file and not is_wrapper:
                torch = frame
        elif _OURS.search(file) or (_LIBRARY.search(file) and not _PACKAGE.search(file)):
            continue
        elif not _PACKAGE.search(file):
            users.append(frame)
            if len(users) > MAX_CALLERS:
                break
        elif not users:
            packages.append(frame)
    called = "" if torch is None else torch.function
    if not users:
        users = packages[:1]
        packages = []
    if not users:
        return SourceLine(within="" if torch is None else str(torch)), called
    user = users[0]
    inner = tuple(map(str, packages))
    callers = tuple(map(str, users[1:]))
    return SourceLine(user.file, user.line, user.function, "", "", inner, callers), called


def line_text(line: SourceLine) -> str:
    """Return a source line as text, with its caller if in another file; empty if unknown."""
    if not (line.line or line.within):
        return ""
    callers = [caller for caller in line.callers[:1] if not caller.startswith(f"{line.name}:")]
    return ", from ".join((str(line), *callers))


def read_stack(text: str) -> tuple[SourceLine, str] | None:
    """Return the main thread's source line and collective, or None if there is no main thread."""
    frames: list[tuple[str, int, str]] | None = None
    for line in lines(text):
        if thread := _THREAD.match(line):
            if frames is not None:
                break
            frames = [] if thread[1] == "MainThread" else None
        elif frames is not None and line.startswith("  ") and line.rstrip().endswith(")"):
            function, _, where = line.rstrip()[:-1].rpartition(" (")
            if place := _PLACE.fullmatch(where):
                frames.append((place[1], int(place[2] or 0), function.strip()))
    return None if frames is None else source_line(frames)
