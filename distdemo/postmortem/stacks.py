"""Read the output of ``py-spy dump``."""

from __future__ import annotations

import re

from distdemo.calls.records import SourceLine
from distdemo.postmortem.evidence import source_line
from distdemo.postmortem.parts import lines

HEAD = re.compile(r"^Process \d+: ", re.MULTILINE)
_THREAD = re.compile(r'^Thread (?:0x[\da-fA-F]+|\d+) \([^)]*\)(?:: "([^"]*)")?')
_PLACE = re.compile(r"(.+?)(?::(\d{1,9}))?")


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
